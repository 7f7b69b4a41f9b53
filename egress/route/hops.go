package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"plait.dev/plait/egress"
)

// unmade is why no route can be made with a next hop, and which were to be. The kernel is asked once in a call, however many they are: the best paths of a border
// router are a million.
type unmade struct {
	err    error
	routes int
	first  []netip.Prefix
}

// add takes in a route that cannot be made.
func (u *unmade) add(e *egress.Entry) {
	if u.routes++; u.routes <= crowded {
		u.first = append(u.first, e.Prefix)
	}
}

// tellUnmade notes the routes that cannot be made, of a crowd one line.
func (k *Kernel) tellUnmade(f *failures) {
	for _, w := range slices.SortedFunc(maps.Keys(k.unmade), func(a, b way) int { return a.sid.Compare(b.sid) }) {
		u := k.unmade[w]
		if u.routes > crowded {
			f.add(k.note(Step{Verb: Add, Object: text(fmt.Sprintf("%d routes, the first %v", u.routes, u.first[0])), Err: u.err}))
			continue
		}
		for _, p := range u.first {
			f.add(k.note(Step{Verb: Add, Object: text(p.String()), Err: fmt.Errorf("make route %v: %w", p, u.err)}))
		}
	}
}

// wanted makes the route of an entry. An entry without SID goes to its next hop, and there must be a way to that.
func (k *Kernel) wanted(e *egress.Entry) (kernelRoute, error) {
	r := kernelRoute{place: placeFor(e), sid: e.SID, link: k.link}
	w := way{0, e.NextHop, 0}
	if e.SID.IsValid() {
		w = way{family(e.Prefix.Addr()), e.SID, k.link}
	}
	u := k.unmade[w]
	if u == nil {
		err := k.lead(&r, e, w)
		if err == nil {
			return r, nil
		}
		u = &unmade{err: err}
		k.lacking, k.unmade[w] = true, u
	}
	u.add(e)
	return r, u.err
}

// lead leads a route to where its entry goes.
func (k *Kernel) lead(r *kernelRoute, e *egress.Entry, w way) (err error) {
	if e.SID.IsValid() {
		r.nexthop, err = k.nexthop(w)
		return err
	}
	if e.Table != 0 || e.Standby {
		return errors.New("it has no SID")
	}
	h, known := k.hops[e.NextHop]
	if !known {
		if h, err = k.findHop(e.NextHop); err != nil {
			return err
		}
		k.hops[e.NextHop] = h
	}
	r.gateway, r.link = h.gateway, h.link
	return nil
}

// nexthop returns the object of a way, and makes it if there is none. Objects that serve no more go at the next Reconcile, or when they are many.
func (k *Kernel) nexthop(w way) (uint32, error) {
	if id, there := k.nexthops[w]; there {
		return id, nil
	}
	h := kernelNexthop{w, firstNexthop}
	for _, id := range k.nexthops { // two thousand for each exit at most, and those that are idle
		h.id = max(h.id, id+1)
	}
	for k.others[h.id] {
		h.id++
	}
	if err := k.carry([]request{{Add, h, "missing"}}); err != nil {
		return 0, err
	}
	k.nexthops[w] = h.id
	return h.id, nil
}
