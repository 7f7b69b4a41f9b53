package egress

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/internal/rung"
)

func prefixes(s ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(s))
	for i := range s {
		out[i] = netip.MustParsePrefix(s[i])
	}
	return out
}

// three are the exits of these tests: b and c are neighbours of the same border router.
var three = []Exit{
	{Name: "a", RouteTarget: "65000:11", Locators: prefixes("2001:db8:f1:1::/64", "2001:db8:f9:1::/64"), Table: 101},
	{Name: "b", RouteTarget: "65000:21", Locators: prefixes("2001:db8:f2:1::/64"), Table: 102},
	{Name: "c", RouteTarget: "65000:22", Locators: prefixes("2001:db8:f2:2::/64"), Table: 103},
}

// known makes an exit one that is known by SIDs.
func (e *Exit) known(sids ...string) {
	e.RouteTarget, e.Locators, e.SIDs = "", nil, nil
	for _, s := range sids {
		e.SIDs = append(e.SIDs, netip.MustParseAddr(s))
	}
}

// Prefixes in each other, of both families, and one that packets cannot leave for.
var nested = prefixes("0.0.0.0/0", "192.0.2.0/24", "192.0.2.128/25", "192.0.2.129/32", "::/0", "2001:db8::/32", "2001:db8:c::/48",
	"2001:db8:c:1::/64", "2001:db8:c::1/128", "ff02::/16", "2001:db8:f2::/48", "2001:db8:f2:2::/64")

var clients = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.129"), netip.MustParseAddr("198.51.100.1"),
	netip.MustParseAddr("2001:db8:c::1"), netip.MustParseAddr("2001:db8:c::2"), netip.MustParseAddr("2001:db8:c:1::1"), netip.MustParseAddr("2001:db9::1"),
	netip.MustParseAddr("2001:db8:f2:2::"), netip.MustParseAddr("2001:db8:f1:1::")}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomUpdate withdraws every third time. The attributes have few values, so that the decision goes deep and SIDs are wrong now and then.
func randomUpdate(r *rand.Rand) Update {
	u := Update{Key: Key{Reflector: one(r, reflectors...), PathID: one[uint32](r, 0, 0, 7), Prefix: one(r, nested...)}}
	vpn := r.IntN(3) > 0
	if vpn {
		u.Distinguisher = one(r, "65000:1", "65000:2")
	}
	if r.IntN(3) == 0 {
		return u
	}
	router := one(r, 1, 2, 3)
	u.Route = &Route{NextHop: netip.AddrFrom4([4]byte{10, 0, 0, byte(router)}), RouterID: netip.AddrFrom4([4]byte{10, 9, 0, byte(router)}),
		LocalPref: one[uint32](r, 100, 100, 100, 200), Origin: one[uint8](r, 0, 0, 2), MED: one[uint32](r, 0, 10, 20),
		ASPath: one(r, nil, []uint32{64496}, []uint32{64497}, []uint32{64496, 64500}, []uint32{64497, 64500})}
	if r.IntN(20) == 0 {
		u.Route.NextHop = netip.Addr{}
	}
	if vpn {
		u.Route.SID = netip.MustParseAddr(one(r, "2001:db8:f1:1::", "2001:db8:f1:1::5", "2001:db8:f9:1::", "2001:db8:f2:1::", "2001:db8:f2:2::", "2001:db8:f2:2::", "2001:db8:f3::"))
		u.Route.RouteTargets = one(r, []string{"65000:11"}, []string{"65000:21"}, []string{"65000:22"}, []string{"65000:21", "65000:22"}, []string{"65000:99"},
			[]string{"65000:99", "65000:11", "65000:22"})
		if r.IntN(20) == 0 {
			u.Route.SID = netip.Addr{}
		}
	}
	return u
}

var reflectors = []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("10.1.1.1")}

// No packet may leave through an exit that does not announce its destination: after no sequence of updates, and at no moment while they are put into
// the kernel change by change.
func TestPlanAgainstOracle(t *testing.T) {
	for seed := range uint64(rung.Times(2, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			exits := slices.Clone(three)
			if seed%2 == 1 {
				exits[2].known("2001:db8:f2:2::", "2001:db8:f3::", "2001:db8:f1:1::5") // the last is in a locator of a
			}
			p, err := NewPlan(exits)
			if err != nil {
				t.Fatal(err)
			}
			o, kernel := newOracle(exits), map[place]Entry{}
			for range 300 {
				before := maps.Clone(o.made)
				updates := make([]Update, 1+r.IntN(6))
				for i := range updates {
					updates[i] = randomUpdate(r)
				}
				if r.IntN(40) == 0 {
					updates = o.withdrawals(one(r, reflectors...))
				}
				o.apply(updates)
				for _, c := range p.Apply(updates) {
					if err := put(kernel, c); err != nil {
						t.Fatal(err)
					}
					checkMoment(t, kernel, before, o.made)
				}
				checkEnd(t, p, o, kernel)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// put does to the kernel's tables what a change says.
func put(kernel map[place]Entry, c Change) error {
	switch {
	case c.Old == nil && c.New == nil, c.Old != nil && c.New != nil && placeOf(c.Old) != placeOf(c.New):
		return fmt.Errorf("%v is no change of one entry", c)
	case c.Old != nil:
		if is, there := kernel[placeOf(c.Old)]; !there || is != *c.Old {
			return fmt.Errorf("change of %+v, the kernel has %+v", *c.Old, is)
		}
		delete(kernel, placeOf(c.Old))
	default:
		if is, there := kernel[placeOf(c.New)]; there {
			return fmt.Errorf("change to %+v from nothing, the kernel has %+v", *c.New, is)
		}
	}
	if c.New != nil {
		kernel[placeOf(c.New)] = *c.New
	}
	return nil
}

// checkMoment looks at the tables in the middle of a change. What is there was right before or is right after, and so is the way that packets take: who had one before
// and has one after has one of the two now.
func checkMoment(t *testing.T, now, before, after map[place]Entry) {
	for at, e := range now {
		if e != before[at] && e != after[at] {
			t.Errorf("%+v was never right", e)
		}
	}
	for _, to := range clients {
		for _, table := range []uint32{0, 101, 102, 103} {
			was, _ := longest(before, table, to)
			will, _ := longest(after, table, to)
			if is, _ := longest(now, table, to); is != was && is != will {
				t.Errorf("by table %d the way to %v is %+v for a moment, between %+v and %+v", table, to, is, was, will)
			}
		}
	}
	for _, e := range now {
		if way, _ := longest(now, 0, e.SID); e.Standby && way == e {
			t.Errorf("%+v leads to itself", e)
		}
	}
}

// difference lists what one has and the other has not.
func difference(got, want map[place]Entry) string {
	var b strings.Builder
	for at, e := range want {
		if got[at] != e {
			fmt.Fprintf(&b, "want %+v, got %+v; ", e, got[at])
		}
	}
	for at, e := range got {
		if _, is := want[at]; !is {
			fmt.Fprintf(&b, "too much: %+v; ", e)
		}
	}
	return b.String()
}

func checkEnd(t *testing.T, p *Plan, o *oracle, kernel map[place]Entry) {
	if !maps.Equal(kernel, o.made) {
		t.Errorf("the changes lead elsewhere: %s", difference(kernel, o.made))
	}
	entries := map[place]Entry{}
	for e := range p.Entries() {
		entries[placeOf(&e)] = e
	}
	if !maps.Equal(entries, o.made) {
		t.Errorf("the entries are others: %s", difference(entries, o.made))
	}
	checkCounts(t, p)
	refusals := map[string]int{}
	for _, r := range p.Refusals() {
		refusals[fmt.Sprint(r.Exit, ": ", r.Reason)] = r.Routes
	}
	if want := o.refused(); !maps.Equal(refusals, want) {
		t.Errorf("refusals %v, want %v", refusals, want)
	}
	for _, to := range clients {
		checkLeaves(t, o, kernel, to)
		checkReachable(t, p, o, to)
	}
}

// checkCounts compares with the list.
func checkCounts(t *testing.T, p *Plan) {
	exits, main, standby := p.Counts()
	for e := range p.Entries() {
		switch i := slices.IndexFunc(p.exits, func(x Exit) bool { return x.Table == e.Table }); {
		case i >= 0:
			exits[i][e.SID]--
		case e.Standby:
			standby--
		default:
			main--
		}
	}
	for _, sids := range exits {
		maps.DeleteFunc(sids, func(_ netip.Addr, n int) bool { return n == 0 })
	}
	if main != 0 || standby != 0 || slices.ContainsFunc(exits, func(sids map[netip.Addr]int) bool { return len(sids) > 0 }) {
		t.Errorf("counts differ from the entries by %v, %d, %d", exits, main, standby)
	}
}

// checkLeaves is the invariant itself: whatever a packet is encapsulated to belongs to an exit that announces where the packet goes.
func checkLeaves(t *testing.T, o *oracle, kernel map[place]Entry, to netip.Addr) {
	for _, table := range []uint32{0, 101, 102, 103} {
		e, found := longest(kernel, table, to)
		if !found || table == 0 && !e.SID.IsValid() {
			continue
		}
		announced := false
		for k, r := range o.routes {
			for i := range o.exits {
				x := &o.exits[i]
				announced = announced || (table == 0 || x.Table == table) && o.announces(x, k, r) && k.Prefix.Contains(to) && r.SID == e.SID
			}
		}
		if !announced {
			t.Errorf("table %d sends packets for %v to %v, whose exit does not announce it", table, to, e.SID)
		}
	}
}

func checkReachable(t *testing.T, p *Plan, o *oracle, to netip.Addr) {
	ways := p.Reachable(to)
	got := map[string]netip.Prefix{}
	for i, w := range ways {
		got[w.Exit] = w.Prefix
		if i > 0 && w.Prefix.Bits() > ways[i-1].Prefix.Bits() {
			t.Errorf("%v: %v stands before %v", to, ways[i-1], w)
		}
		// Of the same prefix, each is what the decision takes when those before it are gone.
		var rest []told
		for _, x := range ways[i:] {
			if x.Prefix == w.Prefix {
				rest = append(rest, told{Key{}, x.Route, slices.IndexFunc(three, func(e Exit) bool { return e.Name == x.Exit })})
			}
		}
		if b := first(rest); three[b.exit].Name != w.Exit {
			t.Errorf("%v: %s stands before %s", to, w.Exit, three[b.exit].Name)
		}
	}
	want := map[string]netip.Prefix{}
	for i, e := range o.exits {
		for _, prefix := range nested {
			if _, is := o.ways[prefix][i]; is && prefix.Contains(to) && (!want[e.Name].IsValid() || prefix.Bits() > want[e.Name].Bits()) {
				want[e.Name] = prefix
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v is reachable through %v, want %v", to, got, want)
	}
}
