package stripe

import (
	"cmp"
	"net/netip"
	"slices"
)

// pair is a link of this host and one of the peer: what a path is made between.
type pair struct{ link, to string }

// way is a pair with the addresses to try, in order.
type way struct {
	pair
	near  bool // a common subnet
	order int
	tries []try
	// limited says of each end, this host's first, whether it has a policy; serves, whether this is a path for that end: one without a policy is not
	// served by one with, as long as there are others to be had.
	limited, serves [2]bool
}

type try struct {
	from source
	to   netip.AddrPort
}

// ways lists what could be tried at all. Policies are of links of this host.
func ways(links []Link, peers []Peer, policies map[string]Policy) []way {
	var out []way
	for i, l := range links {
		for j, p := range peers {
			w := way{pair: pair{l.Name, p.Link}, order: i + j, limited: [2]bool{policies[l.Name] != Policy{}, p.Policy != Policy{}}}
			for _, to := range p.Addrs {
				from, near := l.from(to.Addr())
				switch {
				case !from.addr.IsValid():
				case near:
					w.near = true
					w.tries = slices.Insert(w.tries, 0, try{from, to})
				default:
					w.tries = append(w.tries, try{from, to})
				}
			}
			if len(w.tries) > 0 {
				out = append(out, w)
			}
		}
	}
	for i, w := range out {
		free := func(end int, same func(way) bool) bool { // there is a way to another end without a policy
			return slices.ContainsFunc(out, func(v way) bool { return same(v) && !v.limited[end] })
		}
		out[i].serves[0] = w.limited[0] || !w.limited[1] || !free(1, func(v way) bool { return v.link == w.link })
		out[i].serves[1] = w.limited[1] || !w.limited[0] || !free(0, func(v way) bool { return v.to == w.to })
	}
	return out
}

// choose picks the pairs to have paths between: those that work, and others until each link at both ends has one that serves it. That is as
// many as the larger side has links, not each with each: a second path over a link adds nothing but another flow. A pair that is doubtful (it has
// failed, or takes long) stays, but no longer counts, so that its links get another one to try beside it. One that works, or has a path that is silent, is given
// up when both of its links have another one that works.
func choose(all []way, works, doubtful, silent func(pair) bool) []way {
	var chosen []way
	links, peers := map[string]int{}, map[string]int{}
	add := func(w way) {
		chosen = append(chosen, w)
		if doubtful(w.pair) {
			return
		}
		if w.serves[0] {
			links[w.link]++
		}
		if w.serves[1] {
			peers[w.to]++
		}
	}
	forLink := func(w way) bool { return w.serves[0] && links[w.link] == 0 }
	forPeer := func(w way) bool { return w.serves[1] && peers[w.to] == 0 }
	rest := slices.Clone(all)
	for _, w := range needed(slices.DeleteFunc(slices.Clone(all), func(w way) bool { return !works(w.pair) })) {
		add(w)
	}
	rest = slices.DeleteFunc(rest, func(w way) bool { return works(w.pair) })
	stays := func(w way) bool { return silent(w.pair) && (forLink(w) || forPeer(w)) }
	mute := slices.DeleteFunc(slices.Clone(rest), func(w way) bool { return !stays(w) })
	rest = slices.DeleteFunc(rest, stays)
	for _, w := range mute {
		add(w)
	}
	for {
		rest = slices.DeleteFunc(rest, func(w way) bool { return !forLink(w) && !forPeer(w) })
		if len(rest) == 0 {
			return chosen
		}
		best := slices.MinFunc(rest, func(a, b way) int {
			return cmp.Or(-compareBool(forLink(a), forLink(b)), cmp.Compare(links[a.link]+peers[a.to], links[b.link]+peers[b.to]),
				-compareBool(a.near, b.near), cmp.Compare(a.order, b.order), cmp.Compare(a.link, b.link), cmp.Compare(a.to, b.to))
		})
		add(best)
		rest = slices.DeleteFunc(rest, func(w way) bool { return w.pair == best.pair })
	}
}

// needed leaves out ways whose links both have another one that serves them, those between different subnets first.
func needed(ways []way) []way {
	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Or(compareBool(a.near, b.near), cmp.Compare(b.order, a.order)) })
	for i := 0; i < len(ways); {
		w := ways[i]
		link := slices.ContainsFunc(ways, func(v way) bool { return v.link == w.link && v.to != w.to && v.serves[0] })
		peer := slices.ContainsFunc(ways, func(v way) bool { return v.to == w.to && v.link != w.link && v.serves[1] })
		if (link || !w.serves[0]) && (peer || !w.serves[1]) {
			ways = slices.Delete(ways, i, i+1)
		} else {
			i++
		}
	}
	return ways
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
