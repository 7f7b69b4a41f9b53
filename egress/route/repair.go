package route

import (
	"iter"
	"time"

	"plait.dev/plait/egress"
)

// lost is the reason of steps that put back what an event said is gone.
const lost = "somebody took it away"

// Lost has a value whenever Repair should be called: at once when something of plait's was taken away or a link is back, but at most 10 times a second,
// and a quarter of the time.
func (k *Kernel) Lost() <-chan struct{} { return k.watch.lost }

// uses says whether routes of plait's lead over one of the links.
func (k *Kernel) uses(links map[uint32]bool) bool {
	for _, h := range k.hops {
		if links[h.link] {
			return true
		}
	}
	return links[k.link]
}

// vanished lists the objects of next hops that are no more. The kernel has taken their routes along.
func vanished(before, now map[way]uint32) map[way]bool {
	out := map[way]bool{}
	for w, id := range before {
		if now[w] != id {
			out[w] = true
		}
	}
	return out
}

// lost puts back routes, and those of next hops that vanished. Nothing is asked about the others: reading all there are takes seconds where there are
// a million.
func (q *queue) lost(routes map[place]bool, nexthops map[way]bool, entries iter.Seq[egress.Entry]) {
	if len(routes)+len(nexthops) == 0 {
		return
	}
	for e := range entries {
		if !routes[placeFor(&e)] && !nexthops[way{family(e.Prefix.Addr()), e.SID, q.k.link}] {
			continue
		}
		want, err := q.k.wanted(&e)
		if err == nil {
			q.put(Add, want, lost)
		}
	}
	q.k.tellUnmade(q.f)
}

// putBack makes the few things right that an event may have been about, the rules, addresses and next hops, and puts back the routes that are gone.
func (k *Kernel) putBack(routes map[place]bool, entries iter.Seq[egress.Entry]) error {
	have, err := k.readEnds()
	if err != nil {
		return err
	}
	nexthops := vanished(k.nexthops, have.nexthops)
	k.nexthops, k.unmade, k.waited = have.nexthops, map[way]*unmade{}, 0
	defer func() { k.theirs = nil }()
	var f failures
	k.reconcile(have, func(q *queue) { q.lost(routes, nexthops, entries) }, &f)
	return f.err()
}

// Repair makes good what happened in the kernel since the last call, as far as Lost says it. Everything is compared, as by Reconcile, only when a link
// that plait uses is back or has other addresses, when something that was missing may be there now, or when too much happened; all says that it was.
func (k *Kernel) Repair(entries iter.Seq[egress.Entry]) (all bool, err error) {
	began, l := time.Now(), k.watch.begin()
	defer func() { k.watch.end(began) }()
	if l.none() {
		return false, nil
	}
	link, err := k.findLink(k.config.Interface)
	switch {
	case l.unknown || k.lacking || k.uses(l.links) || k.uses(l.addressed) || err == nil && link != k.link:
		return true, k.Reconcile(entries)
	case !l.ends && len(l.routes) == 0: // a link or an address that is nothing to plait
		return false, nil
	case err != nil: // which Reconcile says
		return true, k.Reconcile(entries)
	}
	return false, k.putBack(l.routes, entries)
}
