package egress

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math/bits"
	"net/netip"
	"slices"
)

// Plan keeps what the reflectors told and knows what the kernel's tables should hold: for each exit its best route to each prefix, for the main table
// the best route and behind it a standby through another exit. It is for one goroutine at a time.
type Plan struct {
	exits    []Exit
	byTarget map[string]int
	bySID    map[netip.Addr]int

	destinations map[netip.Prefix]*destination
	lengths      map[bool]*[129]int // how many destinations have a prefix of each length; true: IPv4

	known    map[uint64]*shared // by their hash: as keys, the attributes would take their room twice
	seed     maphash.Seed
	sids     sids
	tally    tally
	sources  []origin
	bySource map[source]uint32 // those in use
	spare    []uint32          // those that are not

	refusals map[refused]*Refusal
	aside    map[netip.Prefix]uint64 // exits the main table goes without, a bit each, and elsewhere
	out      uint64                  // those it goes without for all prefixes
	scratch  []candidate
}

// shared are the attributes of uses paths.
type shared struct {
	attributes
	uses int
}

// path is one route to a destination. There are millions.
type path struct {
	*shared
	source, pathID uint32
}

// destination is what is known of one prefix, and the entries made of it.
type destination struct {
	paths []path
	best  *attributes   // entry of the main table
	exits []*attributes // entries of the exits; empty if there are none at all
	// standby is the entry behind best, through exit standbyExit.
	standby     *attributes
	standbyExit int
}

type refused struct {
	exit   int // -1: the default table
	reason Reason
}

// NewPlan returns the plan that knows no routes.
func NewPlan(exits []Exit) (*Plan, error) {
	if err := CheckExits(exits); err != nil {
		return nil, err
	}
	p := &Plan{exits: slices.Clone(exits), byTarget: map[string]int{}, bySID: map[netip.Addr]int{}, destinations: map[netip.Prefix]*destination{},
		lengths: map[bool]*[129]int{true: {}, false: {}}, known: map[uint64]*shared{}, seed: maphash.MakeSeed(),
		sids: make(sids, len(exits)), tally: newTally(len(exits)), bySource: map[source]uint32{}, refusals: map[refused]*Refusal{}, aside: map[netip.Prefix]uint64{}}
	for i, e := range exits {
		p.sids[i] = map[netip.Addr]int{}
		for _, s := range e.SIDs {
			p.bySID[s] = i
		}
		if e.RouteTarget != "" {
			p.byTarget[e.RouteTarget] = i
		}
	}
	return p, nil
}

// Refusals lists what is not used and why, by exit and reason.
func (p *Plan) Refusals() []Refusal {
	var out []Refusal
	for _, r := range p.refusals {
		if r.Routes > 0 {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Or(cmp.Compare(a.Exit, b.Exit), cmp.Compare(a.Reason, b.Reason)) })
	return out
}

// Entries are what the kernel should have now, by prefix and table.
func (p *Plan) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, prefix := range p.prefixes() {
			d := p.destinations[prefix]
			for slot := range p.slots() {
				if e, is := p.entry(prefix, d, slot); is && !yield(e) {
					return
				}
			}
		}
	}
}

func (p *Plan) prefixes() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(p.destinations))
	for prefix := range p.destinations {
		out = append(out, prefix)
	}
	slices.SortFunc(out, comparePrefixes)
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// A destination has at most one entry in each slot: one for each exit, then the main table's best and its standby.
func (p *Plan) slots() int { return len(p.exits) + 2 }

// behind returns the attributes a slot's entry is made of.
func (p *Plan) behind(d *destination, slot int) *attributes {
	switch i := slot - len(p.exits); {
	case i < 0 && len(d.exits) > 0:
		return d.exits[slot]
	case i == 0:
		return d.best
	case i == 1:
		return d.standby
	}
	return nil
}

func (p *Plan) entry(prefix netip.Prefix, d *destination, slot int) (e Entry, is bool) {
	a := p.behind(d, slot)
	switch i := slot - len(p.exits); {
	case a == nil:
		return e, false
	case i < 0:
		return Entry{Table: p.exits[slot].Table, Prefix: prefix, SID: a.sid}, true
	case i == 0:
		return Entry{Prefix: prefix, NextHop: a.nextHop}, true
	default:
		return Entry{Prefix: prefix, SID: a.sid, Standby: true}, true
	}
}

// put stores what one update says and returns its prefix.
func (p *Plan) put(u Update) netip.Prefix {
	prefix := u.Prefix.Masked() // host bits change nothing for the kernel, so they must not make two of one
	s := source{u.Reflector, u.Distinguisher}
	d := p.destinations[prefix]
	if d == nil {
		d = &destination{standbyExit: -1}
		p.destinations[prefix] = d
		p.lengths[prefix.Addr().Is4()][max(prefix.Bits(), 0)]++
	}
	if number, known := p.bySource[s]; known {
		if i := slices.IndexFunc(d.paths, func(x path) bool { return x.source == number && x.pathID == u.PathID }); i >= 0 {
			p.release(prefix, d.paths[i].shared)
			p.leave(number)
			d.paths = slices.Delete(d.paths, i, i+1)
		}
	}
	if u.Route != nil {
		if a := p.admit(u.Key, u.Route); a.main || a.exits|a.refused != 0 {
			d.paths = append(d.paths, path{p.share(prefix, a), p.join(s), u.PathID})
		}
	}
	return prefix
}

func (p *Plan) share(prefix netip.Prefix, a attributes) *shared {
	hash := maphash.Comparable(p.seed, a)
	s := p.known[hash]
	switch {
	case s == nil:
		s = &shared{attributes: a}
		p.known[hash] = s
	case s.attributes != a: // others with the same hash
		s = &shared{attributes: a}
	}
	if s.uses++; s.uses == 1 {
		p.sids.count(&s.attributes, 1)
	}
	p.count(prefix, &s.attributes, 1)
	return s
}

func (p *Plan) release(prefix netip.Prefix, s *shared) {
	p.count(prefix, &s.attributes, -1)
	if s.uses--; s.uses > 0 {
		return
	}
	p.sids.count(&s.attributes, -1)
	if hash := maphash.Comparable(p.seed, s.attributes); p.known[hash] == s {
		delete(p.known, hash)
	}
}

// count keeps the number of refused routes.
func (p *Plan) count(prefix netip.Prefix, a *attributes, by int) {
	if a.reason == accepted {
		return
	}
	one := func(exit int, name string) {
		r := p.refusals[refused{exit, a.reason}]
		if r == nil {
			r = &Refusal{Exit: name, Reason: a.reason}
			p.refusals[refused{exit, a.reason}] = r
		}
		if r.Routes += by; by > 0 {
			r.Prefix, r.SID = prefix, a.sid
		}
	}
	if a.main {
		one(-1, "")
	}
	for set := a.refused; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		one(i, p.exits[i].Name)
	}
}

// pick returns the best of a destination's routes for an exit, or for the main table if exit is -1.
func (p *Plan) pick(d *destination, exit int) *attributes {
	p.scratch = p.scratch[:0]
	for _, x := range d.paths {
		if exit < 0 && x.main && x.reason == accepted || exit >= 0 && x.exits>>exit&1 == 1 {
			s := p.sources[x.source]
			p.scratch = append(p.scratch, candidate{attributes: &x.attributes, reflector: s.reflector, distinguisher: s.distinguisher, pathID: x.pathID})
		}
	}
	if c := decide(p.scratch); c != nil {
		return c.attributes
	}
	return nil
}

// standby chooses the exit that stands behind best in the main table; -1: none.
//
// A prefix gets one with its first route of the default table, not before: the main table is the reflectors' as far as they fill it. It keeps
// one when that route goes, since the next one may be on its way; then a standby that can stay stays, so that nothing moves twice.
// An exit that is set aside is the last choice.
func (p *Plan) standby(prefix netip.Prefix, d *destination, best *attributes, exits []*attributes, aside uint64) int {
	if best == nil && d.best == nil && d.standby == nil {
		return -1
	}
	if best == nil && d.standby != nil && len(exits) > 0 && exits[d.standbyExit] != nil && aside>>d.standbyExit&1 == 0 && !p.leadsBack(prefix, exits[d.standbyExit].sid) {
		return d.standbyExit
	}
	for _, without := range [...]uint64{aside, 0} {
		p.scratch = p.scratch[:0]
		for i, a := range exits {
			if a != nil && !sameWay(a, best) && without>>i&1 == 0 && !p.leadsBack(prefix, a.sid) {
				p.scratch = append(p.scratch, candidate{attributes: a, exit: i})
			}
		}
		if c := decide(p.scratch); c != nil {
			return c.exit
		}
	}
	return -1
}

// elsewhere stands for whatever exit a best path leaves by that is none of the plan's.
const elsewhere = maxExits

// leaves says by which exit the best path leaves. Of several sessions of one border router with one neighbour it is that whose route is told alike in all that BGP chooses by; where no difference is told, the first.
func (d *destination) leaves() int {
	first := elsewhere
	for i, a := range d.exits {
		if !sameWay(a, d.best) {
			continue
		}
		if a.localPref == d.best.localPref && a.origin == d.best.origin && a.med == d.best.med {
			return i
		}
		first = min(first, i)
	}
	return first
}

// without says whether the main table is to go without the best path: its exit is set aside, and the standby's is not.
func (d *destination) without(aside uint64) bool {
	return aside != 0 && d.best != nil && d.standby != nil && aside>>d.standbyExit&1 == 0 && aside>>d.leaves()&1 == 1
}

// sameWay says whether an exit's route is the default table's route told again: of the same border router, and received with the same AS path.
func sameWay(exit, main *attributes) bool {
	return exit != nil && main != nil && exit.routerID == main.routerID && exit.asPath == main.asPath
}

// renew makes a destination's entries anew and returns what changed, in the order of the slots. Nobody needs a destination without routes.
func (p *Plan) renew(prefix netip.Prefix) []Change {
	d := p.destinations[prefix]
	fresh := destination{paths: d.paths, best: p.pick(d, -1), standbyExit: -1}
	if slices.ContainsFunc(d.paths, func(x path) bool { return x.exits != 0 }) {
		fresh.exits = make([]*attributes, len(p.exits))
		for i := range fresh.exits {
			fresh.exits[i] = p.pick(d, i)
		}
	}
	aside := p.aside[prefix] | p.out
	if i := p.standby(prefix, d, fresh.best, fresh.exits, aside); i >= 0 {
		fresh.standby, fresh.standbyExit = fresh.exits[i], i
	}
	if fresh.without(aside) {
		fresh.best = nil
	}
	var out []Change
	for slot := range p.slots() {
		if p.behind(d, slot) == p.behind(&fresh, slot) {
			continue
		}
		p.tally.count(slot, p.behind(d, slot), -1)
		p.tally.count(slot, p.behind(&fresh, slot), 1)
		var c Change
		if e, was := p.entry(prefix, d, slot); was {
			c.Old = &e
		}
		if e, is := p.entry(prefix, &fresh, slot); is {
			c.New = &e
		}
		if c.Old == nil || c.New == nil || *c.Old != *c.New {
			out = append(out, c)
		}
	}
	if *d = fresh; len(d.paths) == 0 {
		delete(p.destinations, prefix)
		p.lengths[prefix.Addr().Is4()][max(prefix.Bits(), 0)]--
	}
	return out
}

// settle renews destinations, so that at each moment in between a packet takes the way of before or the one of after. What is new comes before what goes: when there
// was a way and is one after, there is one all the time, also if they are of different prefixes. What is new begins with the longest prefix, and what goes
// with the shortest: otherwise packets whose way is to be that of the longer one would take that of the shorter one meanwhile.
func (p *Plan) settle(touched []netip.Prefix) []Change {
	touched = p.around(touched)
	slices.SortFunc(touched, func(a, b netip.Prefix) int { return cmp.Or(b.Bits()-a.Bits(), a.Addr().Compare(b.Addr())) })
	var out, gone []Change
	for _, prefix := range slices.Compact(touched) {
		for _, c := range p.renew(prefix) {
			if c.New == nil {
				gone = append(gone, c)
			} else {
				out = append(out, c)
			}
		}
	}
	slices.Reverse(gone)
	return append(out, gone...)
}

// Apply takes in what reflectors told and returns what that changes in the kernel's tables, to be done in this order.
func (p *Plan) Apply(updates []Update) []Change {
	touched := make([]netip.Prefix, len(updates))
	for i, u := range updates {
		touched[i] = p.put(u)
	}
	return p.settle(touched)
}
