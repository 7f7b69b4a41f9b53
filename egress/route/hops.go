package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

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
		why := u.err.Error() // with the advice that there is: that of its errno is for steps
		if u.routes > crowded {
			f.add(k.note(Step{Verb: Add, Object: text(fmt.Sprintf("%d routes, the first %v", u.routes, u.first[0])), Err: errors.New(why)}))
			continue
		}
		for _, p := range u.first {
			f.add(k.note(Step{Verb: Add, Object: text(p.String()), Err: fmt.Errorf("make route %v: %s", p, why)}))
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
	h := k.hops[e.NextHop]
	if !h.gateway.IsValid() {
		h, err = k.findHop(e.NextHop)
		if k.hops[e.NextHop] = h; err != nil {
			return err
		}
	}
	r.gateway, r.link = h.gateway, h.link
	return nil
}

// Strayed says that the way to a next hop of best paths is another one than they take, or that there is one now, or none: everything is to be compared. What is behind a route of plait's own is
// looked at once, and not again as long as it is, for that is to read all routes.
func (k *Kernel) Strayed() bool {
	covered := map[netip.Addr]bool{}
	defer func() { k.covered, k.theirs = covered, nil }()
	for next, was := range k.hops {
		r, ours, err := k.askHop(next) // an error is that there is none, or that the kernel has no memory to say
		if passes(err) {
			covered[next] = k.covered[next]
			continue
		}
		covered[next] = ours
		now := hopBy(r, next)
		if ours && k.covered[next] {
			continue
		} else if ours {
			now, _ = k.findHop(next)
		}
		if now != was {
			return true
		}
	}
	return false
}

// passes says of an error that it is of the moment, and not of what was asked.
func passes(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EINTR}, func(one error) bool { return errors.Is(err, one) })
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
	if err := k.makeNexthop(h); err != nil {
		return 0, err
	}
	k.nexthops[w] = h.id
	return h.id, nil
}

// makeNexthop makes an object. The kernel takes memory on every CPU for it without waiting (net/ipv6/seg6_iptunnel.c, seg6_build_state); of that there may be none until a
// worker of the kernel's has had its turn, some milliseconds later. Where there still is none after a second in all, nothing waits any more: the next comparison tries again.
func (k *Kernel) makeNexthop(h kernelNexthop) error {
	message := []netlink.Message{h.request(nil, Add)}
	answers, err := k.route.transact(message)
	for wait := time.Millisecond; err == nil && errors.Is(answers[0], unix.ENOMEM) && wait < 200*time.Millisecond && k.waited < patience; wait *= 2 {
		time.Sleep(wait)
		k.waited += wait
		answers, err = k.route.transact(message)
	}
	if err != nil {
		return err
	}
	return k.told(request{Add, h, "missing"}, answers[0], nil)
}
