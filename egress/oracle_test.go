package egress

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// oracle is the plan again, slow and simple: it keeps all routes as they were told and looks at every one for every question.
type oracle struct {
	exits  []Exit
	routes map[Key]Route
	// made is what the kernel has after the updates up to now.
	made map[place]Entry
	ways map[netip.Prefix]map[int]told // best route of each exit (by its number), and of the main table (-1)
}

// place is where the kernel has room for one entry.
type place struct {
	table   uint32
	prefix  netip.Prefix
	standby bool
}

func placeOf(e *Entry) place { return place{e.Table, e.Prefix, e.Standby} }

func newOracle(exits []Exit) *oracle {
	return &oracle{exits: exits, routes: map[Key]Route{}}
}

func (o *oracle) apply(updates []Update) {
	for _, u := range updates {
		k := u.Key
		k.Prefix = k.Prefix.Masked()
		delete(o.routes, k)
		if u.Route != nil {
			o.routes[k] = *u.Route
		}
	}
	o.make()
}

// withdrawals are what is heard when a reflector's session dies.
func (o *oracle) withdrawals(reflector netip.Addr) (out []Update) {
	for k := range o.routes {
		if k.Reflector == reflector {
			out = append(out, Update{Key: k})
		}
	}
	return out
}

// announces says whether a route makes a destination reachable through an exit.
func (o *oracle) announces(e *Exit, k Key, r Route) bool {
	return k.Distinguisher != "" && e.marks(r) && e.has(r.SID) && !o.others(e, r.SID) && !k.Prefix.Addr().IsMulticast()
}

// others says whether another exit is known by a SID.
func (o *oracle) others(e *Exit, sid netip.Addr) bool {
	return slices.ContainsFunc(o.exits, func(x Exit) bool { return x.Name != e.Name && slices.Contains(x.SIDs, sid) })
}

// marks says whether a route is marked as the exit's.
func (e *Exit) marks(r Route) bool {
	return slices.Contains(r.RouteTargets, e.RouteTarget) || slices.Contains(e.SIDs, r.SID)
}

func (e *Exit) has(sid netip.Addr) bool {
	return slices.Contains(e.SIDs, sid) || slices.ContainsFunc(e.Locators, func(l netip.Prefix) bool { return l.Contains(sid) })
}

// told is a route with its key.
type told struct {
	Key
	Route
	exit int
}

func (t told) neighbour() uint32 {
	if len(t.ASPath) == 0 {
		return 0
	}
	return t.ASPath[0]
}

// first is the decision once more: the routes that are first up to the origin, of each neighbour AS those with the least MED, and of these the first.
func first(routes []told) *told {
	if len(routes) == 0 {
		return nil
	}
	upToOrigin := func(a, b told) int {
		return cmp.Or(-cmp.Compare(a.LocalPref, b.LocalPref), cmp.Compare(len(a.ASPath), len(b.ASPath)), cmp.Compare(a.Origin, b.Origin))
	}
	top := slices.MinFunc(routes, upToOrigin)
	least := map[uint32]uint32{}
	for _, r := range routes {
		if upToOrigin(r, top) == 0 {
			if m, is := least[r.neighbour()]; !is || r.MED < m {
				least[r.neighbour()] = r.MED
			}
		}
	}
	var left []told
	for _, r := range routes {
		if upToOrigin(r, top) == 0 && r.MED == least[r.neighbour()] {
			left = append(left, r)
		}
	}
	best := slices.MinFunc(left, func(a, b told) int {
		return cmp.Or(a.RouterID.Compare(b.RouterID), a.Reflector.Compare(b.Reflector), cmp.Compare(a.Distinguisher, b.Distinguisher),
			cmp.Compare(a.PathID, b.PathID), cmp.Compare(a.exit, b.exit))
	})
	return &best
}

// of finds the ways to a prefix.
func (o *oracle) of(prefix netip.Prefix) map[int]told {
	sorted := map[int][]told{}
	for k, r := range o.routes {
		if k.Prefix != prefix {
			continue
		}
		for i := range o.exits {
			if o.announces(&o.exits[i], k, r) {
				sorted[i] = append(sorted[i], told{k, r, 0})
			}
		}
		if k.Distinguisher == "" && r.NextHop.IsValid() && !prefix.Addr().IsMulticast() {
			sorted[-1] = append(sorted[-1], told{k, r, 0})
		}
	}
	out := map[int]told{}
	for i, routes := range sorted {
		out[i] = *first(routes)
	}
	return out
}

// make makes all entries again.
func (o *oracle) make() {
	prefixes := map[netip.Prefix]bool{}
	for k := range o.routes {
		prefixes[k.Prefix] = true
	}
	made := map[place]Entry{}
	o.ways = map[netip.Prefix]map[int]told{}
	add := func(e Entry) { made[placeOf(&e)] = e }
	for prefix := range prefixes {
		o.ways[prefix] = o.of(prefix)
	}
	for prefix := range prefixes {
		ways := maps.Clone(o.ways[prefix])
		main, hasMain := ways[-1]
		if hasMain {
			add(Entry{Prefix: prefix, NextHop: main.NextHop})
		}
		delete(ways, -1)
		_, hadMain := o.made[place{0, prefix, false}]
		old, hadStandby := o.made[place{0, prefix, true}]
		var others []told
		stays := false
		for i, w := range ways {
			add(Entry{Table: o.exits[i].Table, Prefix: prefix, SID: w.SID})
			if o.leadsBack(prefix, w.SID) {
				continue
			}
			if !hasMain || main.RouterID != w.RouterID || !slices.Equal(main.ASPath, w.ASPath) {
				others = append(others, told{Key{}, w.Route, i})
			}
			// Which exit a standby goes through shows in its SID: SIDs of exits differ in this test.
			if hadStandby && !hasMain && o.exits[i].has(old.SID) && !o.others(&o.exits[i], old.SID) {
				stays = true
				add(Entry{Prefix: prefix, SID: w.SID, Standby: true})
			}
		}
		if w := first(others); w != nil && !stays && (hasMain || hadMain || hadStandby) {
			add(Entry{Prefix: prefix, SID: w.SID, Standby: true})
		}
	}
	o.made = made
}

// leadsBack says whether the main table has no best path to the SID that is longer than the prefix the SID is in.
func (o *oracle) leadsBack(prefix netip.Prefix, sid netip.Addr) bool {
	longer := false
	for other, ways := range o.ways {
		_, best := ways[-1]
		longer = longer || best && other.Bits() > prefix.Bits() && other.Contains(sid)
	}
	return prefix.Contains(sid) && !longer
}

// longest finds the entry a packet takes.
func longest(entries map[place]Entry, table uint32, to netip.Addr) (Entry, bool) {
	var best Entry
	found := false
	for _, e := range entries {
		if e.Table == table && e.Prefix.Contains(to) && (!found || e.Prefix.Bits() > best.Prefix.Bits() ||
			e.Prefix == best.Prefix && best.Standby) {
			best, found = e, true
		}
	}
	return best, found
}

// refused counts routes with a reason against them, by exit and reason.
func (o *oracle) refused() map[string]int {
	out := map[string]int{}
	for k, r := range o.routes {
		for _, e := range o.exits {
			if k.Distinguisher == "" || !e.marks(r) || o.announces(&e, k, r) {
				continue
			}
			why := OutsideLocator
			if e.has(r.SID) {
				why = OthersSID
			}
			if !r.SID.IsValid() {
				why = NoSID
			}
			if k.Prefix.Addr().IsMulticast() {
				why = NotUnicast
			}
			out[fmt.Sprint(e.Name, ": ", why)]++
		}
		if k.Distinguisher == "" && k.Prefix.Addr().IsMulticast() {
			out[": "+NotUnicast.String()]++
		} else if k.Distinguisher == "" && !r.NextHop.IsValid() {
			out[": "+NoNextHop.String()]++
		}
	}
	return out
}
