package route

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"plait.dev/plait/egress"
)

// portion is how many requests are collected before they go to the kernel, so that a million routes do not stand in memory as requests.
const portion = 4096

// queue collects requests.
type queue struct {
	k    *Kernel
	f    *failures
	list []request
}

func (q *queue) put(v Verb, o object, reason string) {
	if q.list = append(q.list, request{v, o, reason}); len(q.list) == portion {
		q.flush()
	}
}

func (q *queue) flush() {
	q.f.add(q.k.carry(q.list))
	q.list = q.list[:0]
}

// missingRules puts what is wanted and not there, unwantedRules what is there and not wanted, each in the same order every time.
func (q *queue) missingRules(have, want map[kernelRule]bool, unreachable bool) {
	for _, r := range sortedRules(want) {
		if r.unreachable == unreachable && !have[r] {
			q.put(Add, r, "missing")
		}
	}
}

func (q *queue) unwantedRules(have, want map[kernelRule]bool, unreachable bool) {
	for _, r := range sortedRules(have) {
		if r.unreachable == unreachable && !want[r] {
			q.put(Delete, r, "no longer wanted")
		}
	}
}

func sortedRules(in map[kernelRule]bool) []kernelRule {
	return sorted(in, func(a, b kernelRule) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), a.source.Compare(b.source), cmp.Compare(a.table, b.table))
	})
}

func sortedAddresses(in map[kernelAddress]bool) []kernelAddress {
	return sorted(in, func(a, b kernelAddress) int { return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.link, b.link)) })
}

func sorted[K comparable, V any](in map[K]V, compare func(a, b K) int) []K {
	out := make([]K, 0, len(in))
	for k := range in {
		out = append(out, k)
	}
	slices.SortFunc(out, compare)
	return out
}

// unwantedAddresses go before anything else of their exit does.
func (q *queue) unwantedAddresses(have, want map[kernelAddress]bool) {
	for _, a := range sortedAddresses(have) {
		if !want[a] {
			q.put(Delete, a, "no longer wanted")
		}
	}
}

func (q *queue) missingAddresses(have, want map[kernelAddress]bool) {
	for _, a := range sortedAddresses(want) {
		if !have[a] {
			q.put(Add, a, "missing")
		}
	}
}

// routes makes the tables right. What is wrong goes first, then what is missing comes: a wrong route can lead a packet through an exit that does not
// announce its destination, a missing one cannot.
func (q *queue) routes(have routes, entries iter.Seq[egress.Entry]) {
	const good = ^uint32(0) // the kind of a route that stays, or will be right
	used := map[uint32]bool{}
	q.k.served = map[way]int{}
	for e := range entries {
		q.k.leads(&e, 1)
		is := have.find(placeFor(&e))
		want, err := q.k.wanted(&e)
		if err != nil {
			continue
		}
		used[want.nexthop] = true
		if is == nil || is.kind == good {
			continue
		}
		if was := have.whole(is); was != want {
			q.put(Replace, want, fmt.Sprintf("was not as wanted: %v", was))
		}
		is.kind = good
	}
	q.k.tellUnmade(q.f)
	for i := range have.list {
		if is := &have.list[i]; is.kind != good {
			q.put(Delete, have.whole(is), "no longer wanted")
		}
	}
	for e := range entries {
		if have.find(placeFor(&e)) != nil {
			continue
		}
		if want, err := q.k.wanted(&e); err == nil { // else it was said above
			q.put(Add, want, "missing")
		}
	}
	for w, id := range q.k.nexthops { // the kernel would take routes along, so this comes last
		if !used[id] {
			q.put(Delete, kernelNexthop{w, id}, "no longer wanted")
			delete(q.k.nexthops, w)
		}
	}
}

// released lists the addresses whose packets take the main table, as Release has left them. Until their exit's table is right there is no better way for them: to compare
// a full one takes seconds.
func released(have state) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a := range have.addresses {
		out[a.address] = true
	}
	for r := range have.rules {
		delete(out, r.source)
	}
	return out
}

// reconcile makes what is into what should be. At no moment is there an address whose packets could take the main table, but for those that have before: the unreachable
// rule comes first and goes last, the address comes last and goes first.
func (k *Kernel) reconcile(have state, routes func(*queue), f *failures) {
	q := &queue{k: k, f: f}
	free, bound := released(have), map[kernelRule]bool{}
	for r := range k.rules {
		if !free[r.source] {
			bound[r] = true
		}
	}
	q.unwantedAddresses(have.addresses, k.addresses)
	q.missingRules(have.rules, bound, true)
	q.unwantedRules(have.rules, k.rules, false)
	q.flush() // the objects of next hops are made at once, when the first route needs one
	routes(q)
	q.missingRules(have.rules, k.rules, false)
	maps.Copy(bound, have.rules)
	q.missingRules(bound, k.rules, true)
	q.missingAddresses(have.addresses, k.addresses)
	q.unwantedRules(have.rules, k.rules, true)
	q.flush()
}

// mostIdle is how many objects of next hops may wait for the next comparison that no route leads to any more. Their SIDs may be back soon; but a reflector can tell ever new
// ones, and with a full table the comparison is minutes away.
const mostIdle = 1000

// leads notes that entries lead to the object of an entry's next hop, or no longer do.
func (k *Kernel) leads(e *egress.Entry, by int) {
	if e == nil || !e.SID.IsValid() {
		return
	}
	w := way{family(e.Prefix.Addr()), e.SID, k.link}
	if k.served[w] += by; k.served[w] <= 0 {
		delete(k.served, w)
	}
}

// tidy takes away the objects that no route leads to, where they are many. The kernel takes a route along that should not be there either.
func (k *Kernel) tidy() error {
	if len(k.nexthops) <= len(k.served)+mostIdle {
		return nil
	}
	var requests []request
	for w, id := range k.nexthops {
		if k.served[w] == 0 {
			requests = append(requests, request{Delete, kernelNexthop{w, id}, "no longer wanted"})
			delete(k.nexthops, w)
		}
	}
	return k.carry(requests)
}
