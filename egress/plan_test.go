package egress

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var (
	near = netip.MustParsePrefix("2001:db8:c::/48")
	rr   = netip.MustParseAddr("2001:db8::1")
)

// vpn is a route of exit a, b or c, default a route of the default table.
func vpn(exit string, change func(*Route)) Update {
	i := strings.Index("abc", exit)
	r := &Route{SID: three[i].Locators[0].Addr(), RouteTargets: []string{three[i].RouteTarget}, LocalPref: 100, ASPath: []uint32{64496 + uint32(i), 64500},
		RouterID: netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + i)}), NextHop: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})}
	if change != nil {
		change(r)
	}
	return Update{Key{Reflector: rr, Distinguisher: "65000:1" + exit, Prefix: near}, r}
}

func unicast(exit string) Update {
	u := vpn(exit, nil)
	u.Distinguisher, u.Route.SID, u.Route.RouteTargets = "", netip.Addr{}, nil
	return u
}

func withdraw(u Update) Update { return Update{Key: u.Key} }

func newPlan(t testing.TB, exits []Exit, updates ...Update) *Plan {
	t.Helper()
	p, err := NewPlan(exits)
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(updates)
	return p
}

// show writes entries as "main via 10.0.0.1", "main standby 2001:db8:f2:1::", "101 2001:db8:f1:1::".
func show(e *Entry) string {
	switch {
	case e == nil:
		return "-"
	case e.Standby:
		return fmt.Sprint("main standby ", e.SID)
	case e.Table == 0:
		return fmt.Sprint("main via ", e.NextHop)
	}
	return fmt.Sprint(e.Table, " ", e.SID)
}

func changes(list []Change) string {
	var out []string
	for _, c := range list {
		out = append(out, show(c.Old)+" > "+show(c.New))
	}
	return strings.Join(out, "; ")
}

// The hole FRR leaves on a server: exit a is withdrawn, and only 100 ms later the reflector tells of the best path through b. The standby stands in.
func TestStandbyStandsIn(t *testing.T) {
	p := newPlan(t, three[:2], unicast("a"), vpn("a", nil), vpn("b", nil))
	for _, c := range []struct {
		updates []Update
		want    string
	}{
		{[]Update{withdraw(vpn("a", nil))}, "101 2001:db8:f1:1:: > -"},
		{[]Update{withdraw(unicast("a"))}, "main via 10.0.0.1 > -"},
		{[]Update{unicast("b")}, "- > main via 10.0.0.2; main standby 2001:db8:f2:1:: > -"},
		{[]Update{vpn("a", nil)}, "- > 101 2001:db8:f1:1::; - > main standby 2001:db8:f1:1::"},
		{[]Update{unicast("a")}, "main via 10.0.0.2 > main via 10.0.0.1; main standby 2001:db8:f1:1:: > main standby 2001:db8:f2:1::"},
		{[]Update{unicast("a"), withdraw(vpn("c", nil))}, ""},
		// The default table's route goes first: the standby stays where it is until the next one comes.
		{[]Update{withdraw(unicast("a"))}, "main via 10.0.0.1 > -"},
		{[]Update{withdraw(vpn("b", nil))}, "main standby 2001:db8:f2:1:: > main standby 2001:db8:f1:1::; 102 2001:db8:f2:1:: > -"},
		{[]Update{withdraw(vpn("a", nil))}, "main standby 2001:db8:f1:1:: > -; 101 2001:db8:f1:1:: > -"},
		// Without a route of the default table, now or before, the main table is none of plait's business.
		{[]Update{vpn("b", nil)}, "- > 102 2001:db8:f2:1::"},
	} {
		if got := changes(p.Apply(c.updates)); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A standby never leads to itself: it may hold its own SID only where a longer best path leads there, whichever comes first.
func TestStandbyLeadsOn(t *testing.T) {
	at := func(prefix string, u Update) Update { u.Prefix = netip.MustParsePrefix(prefix); return u }
	all, locator := at("::/0", vpn("b", nil)), at("2001:db8:f2::/48", unicast("b"))
	p := newPlan(t, three[:2])
	for _, c := range []struct {
		updates []Update
		want    string
	}{
		{[]Update{at("::/0", unicast("a")), all}, "- > 102 2001:db8:f2:1::; - > main via 10.0.0.1"},
		{[]Update{locator}, "- > main via 10.0.0.2; - > main standby 2001:db8:f2:1::"},
		{[]Update{at("::/0", withdraw(unicast("a")))}, "main via 10.0.0.1 > -"},
		{[]Update{withdraw(locator)}, "main standby 2001:db8:f2:1:: > -; main via 10.0.0.2 > -"},
		{[]Update{locator, at("::/0", unicast("a"))}, "- > main via 10.0.0.2; - > main via 10.0.0.1; - > main standby 2001:db8:f2:1::"},
		{[]Update{withdraw(locator)}, "main standby 2001:db8:f2:1:: > -; main via 10.0.0.2 > -"},
		{[]Update{at("2001:db8:f2:1::/64", vpn("b", nil)), at("2001:db8:f2:1::/64", unicast("a"))}, // the best path to the SID itself
			"- > 102 2001:db8:f2:1::; - > main via 10.0.0.1; - > main standby 2001:db8:f2:1::"},
	} {
		if got := changes(p.Apply(c.updates)); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := changes(p.SetAside(netip.MustParsePrefix("2001:db8:f2:1::/64"), "")); got != "" {
		t.Errorf("set aside, though what is behind leads to itself: %q", got)
	}
}

// A shorter prefix that comes with the withdrawal of a longer one is there first.
func TestNewBeforeGone(t *testing.T) {
	p := newPlan(t, three, vpn("a", nil))
	wide := vpn("a", nil)
	wide.Prefix = netip.MustParsePrefix("2001:db8::/32")
	got := p.Apply([]Update{withdraw(vpn("a", nil)), wide})
	if len(got) != 2 || got[0].Old != nil || got[1].New != nil {
		t.Errorf("got %s", changes(got))
	}
}

// Each step of the decision, in their order: what decides at one step is worse at all later ones.
func TestDecision(t *testing.T) {
	worst := Route{LocalPref: 100, ASPath: []uint32{64496, 1, 2}, Origin: 2, MED: 50, RouterID: netip.MustParseAddr("10.9.0.9"), NextHop: rr}
	for _, c := range []struct {
		why    string
		better func(*Route)
	}{
		{"router 10.9.0.1 before 10.9.0.9", func(r *Route) { r.RouterID = netip.MustParseAddr("10.9.0.1") }},
		{"MED 0 before 50, both from AS 64496", func(r *Route) { r.MED = 0 }},
		{"origin 0 before 2", func(r *Route) { r.Origin = 0 }},
		{"AS path of 2 before 3", func(r *Route) { r.ASPath = r.ASPath[:2] }},
		{"local-pref 200 before 100", func(r *Route) { r.LocalPref = 200 }},
	} {
		better := worst
		c.better(&better)
		p := newPlan(t, three,
			vpn("b", func(r *Route) { *r = better; r.SID, r.RouteTargets = three[1].Locators[0].Addr(), []string{"65000:21"} }),
			vpn("a", func(r *Route) { *r = worst; r.SID, r.RouteTargets = three[0].Locators[0].Addr(), []string{"65000:11"} }))
		ways := p.Reachable(near.Addr())
		if len(ways) != 2 || ways[0].Exit != "b" || ways[0].Reason != c.why || ways[1].Reason != "the last that announces it" {
			t.Errorf("got %+v, want b because of %q", ways, c.why)
		}
		c.better(&worst)
		worst.RouterID = netip.MustParseAddr("10.9.0.9")
		worst.MED, worst.Origin = max(worst.MED, 50), 2
	}
}

// MED counts only between routes of the same neighbour AS, so a, b and c beat each other in a circle when taken in pairs: c beats a by MED, a beats b and
// b beats c by router. Whatever the order they come in, a drops out, then b wins.
func TestMED(t *testing.T) {
	make := func(exit string, as, med uint32, router string) Update {
		return vpn(exit, func(r *Route) { r.ASPath, r.MED, r.RouterID = []uint32{as}, med, netip.MustParseAddr(router) })
	}
	a, b, c := make("a", 64496, 20, "10.9.0.1"), make("b", 64497, 0, "10.9.0.2"), make("c", 64496, 10, "10.9.0.3")
	for _, order := range [][]Update{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		var got []string
		for _, w := range newPlan(t, three, order...).Reachable(near.Addr()) {
			got = append(got, w.Exit)
		}
		if !slices.Equal(got, []string{"b", "c", "a"}) {
			t.Errorf("got %v, want b c a", got)
		}
	}
}

func TestReachable(t *testing.T) {
	wide := vpn("a", func(r *Route) { r.LocalPref = 300 })
	wide.Prefix = netip.MustParsePrefix("::/0")
	p := newPlan(t, three, wide, vpn("b", nil), vpn("c", func(r *Route) { r.LocalPref = 200 }))
	var got []string
	for _, w := range p.Reachable(near.Addr()) {
		got = append(got, fmt.Sprintf("%s %v: %s", w.Exit, w.Prefix, w.Reason))
	}
	want := []string{"c 2001:db8:c::/48: local-pref 200 before 100", "b 2001:db8:c::/48: prefix of /48 before /0", "a ::/0: the last that announces it"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := p.Reachable(netip.MustParseAddr("2001:db8:d::1")); len(got) != 1 || got[0].Reason != "the only exit that announces it" || len(got[0].Route.ASPath) != 2 {
		t.Errorf("got %+v", got)
	}
	if got := p.Reachable(netip.MustParseAddr("::ffff:192.0.2.1")); len(got) != 0 {
		t.Errorf("an IPv4 client is reachable through %+v", got)
	}
}

// A route that is refused, or of no exit, still replaces the one under its key.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Route)
		want   []Refusal
	}{
		{"a SID of another's locator", func(r *Route) { r.SID = three[1].Locators[0].Addr() }, []Refusal{{"a", OutsideLocator, 1, near, three[1].Locators[0].Addr()}}},
		{"no SID", func(r *Route) { r.SID = netip.Addr{} }, []Refusal{{"a", NoSID, 1, near, netip.Addr{}}}},
		{"the unspecified SID", func(r *Route) { r.SID = netip.IPv6Unspecified() }, []Refusal{{"a", NoSID, 1, near, netip.IPv6Unspecified()}}},
		{"nobody's route target", func(r *Route) { r.RouteTargets = []string{"65000:99"} }, nil},
	} {
		p := newPlan(t, three, vpn("a", nil))
		if got := changes(p.Apply([]Update{vpn("a", c.change)})); got != "101 2001:db8:f1:1:: > -" {
			t.Errorf("%s: got %s", c.name, got)
		}
		if got := p.Refusals(); !slices.Equal(got, c.want) {
			t.Errorf("%s: refusals %v, want %v", c.name, got, c.want)
		}
		if p.Apply([]Update{withdraw(vpn("a", nil))}); len(p.Refusals()) > 0 || len(p.destinations) > 0 || len(p.known) > 0 {
			t.Errorf("%s: withdrawn, it left something: %v %v %v", c.name, p.Refusals(), p.destinations, p.known)
		}
	}
}

// Several route targets: the route is of each exit whose locator has the SID, and refused for the others.
func TestRouteTargets(t *testing.T) {
	exits := slices.Clone(three)
	exits[2].Locators = exits[1].Locators
	p := newPlan(t, exits, vpn("b", func(r *Route) { r.RouteTargets = []string{"65000:99", "65000:22", "65000:21", "65000:11"} }))
	var got []Change
	for e := range p.Entries() {
		got = append(got, Change{New: &e})
	}
	if s := changes(got); s != "- > 102 2001:db8:f2:1::; - > 103 2001:db8:f2:1::" {
		t.Errorf("got %s", s)
	}
	if r := p.Refusals(); len(r) != 1 || r[0].Exit != "a" || r[0].Reason != OutsideLocator {
		t.Errorf("refusals %v", r)
	}
}

// Of an exit that is known by its SIDs are the routes with these, whatever their route target, and no other exit is concerned.
func TestKnownBySIDs(t *testing.T) {
	exits := slices.Clone(three)
	exits[0].known("2001:db8:f1:1::", "2001:db8:f1:1::7")
	other := vpn("a", func(r *Route) { r.SID = netip.MustParseAddr("2001:db8:f1:1::8") })
	other.Reflector = reflectors[1]
	p := newPlan(t, exits, vpn("a", func(r *Route) { r.RouteTargets = []string{"65000:99"} }), vpn("b", nil), other)
	var got []string
	for _, w := range p.Reachable(near.Addr().Next()) {
		got = append(got, fmt.Sprint(w.Exit, " ", w.Route.SID))
	}
	if want := []string{"a 2001:db8:f1:1::", "b 2001:db8:f2:1::"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r := p.Refusals(); len(r) > 0 {
		t.Errorf("refused %v", r)
	}
}

func TestCheckExits(t *testing.T) {
	for _, c := range []struct {
		change func(a, b *Exit)
		want   string
	}{
		{func(a, _ *Exit) { a.Name = "" }, "it needs a name"},
		{func(a, _ *Exit) { a.Table = 254 }, "the kernel's own"},
		{func(a, _ *Exit) { a.Locators = nil }, "it has no locator"},
		{func(a, _ *Exit) { a.RouteTarget = "" }, "it needs a route target or SIDs"},
		{func(a, _ *Exit) { a.SIDs = clients[3:4] }, "leave out route target and locators"},
		{func(a, b *Exit) { a.known("2001:db8:f1::1"); b.known("2001:db8:f1::1") }, `SID 2001:db8:f1::1 belongs to exit "a" already`},
		{func(a, _ *Exit) { a.known("192.0.2.1") }, "SID 192.0.2.1 is no IPv6 unicast address"},
		{func(a, _ *Exit) { a.Locators = prefixes("10.0.0.0/8") }, "no IPv6 prefix"},
		{func(_, b *Exit) { b.Table = 101 }, `table 101 belongs to exit "a" already`},
		{func(_, b *Exit) { b.RouteTarget = "65000:11" }, `route target 65000:11 belongs to exit "a" already`},
		{func(a, b *Exit) { a.Addresses, b.Addresses = clients[:1], clients[:1] }, "address 192.0.2.1 belongs"},
		{func(a, _ *Exit) { a.Addresses = clients[:2] }, "the second of its family"},
		{func(a, _ *Exit) { a.Addresses = []netip.Addr{netip.MustParseAddr("fe80::1")} }, "no IPv4 or IPv6 unicast address"},
	} {
		exits := slices.Clone(three)
		c.change(&exits[0], &exits[1])
		if _, err := NewPlan(exits); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// BenchmarkPlan loads 250,000 prefixes from 4 exits over 2 reflectors, with 20,000 AS paths at each exit, and measures what a route costs, to
// make and to keep.
func BenchmarkPlan(b *testing.B) {
	const total, perUpdate = 250_000, 100
	exits := []Exit{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	for i := range exits {
		exits[i].RouteTarget, exits[i].Table = fmt.Sprint("65000:", i), uint32(101+i)
		exits[i].Locators = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfc, 0, byte(i)}), 48)}
	}
	told := func(reflector byte, exit, from, to int) []Update {
		var out []Update
		for n := from; n < to; n++ {
			prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(n >> 16), byte(n >> 8), byte(n)}), 48)
			out = append(out, Update{Key{Reflector: netip.AddrFrom4([4]byte{10, 0, 0, reflector}), Distinguisher: exits[exit].RouteTarget, Prefix: prefix},
				&Route{SID: exits[exit].Locators[0].Addr(), RouteTargets: []string{exits[exit].RouteTarget}, LocalPref: 100,
					RouterID: netip.AddrFrom4([4]byte{10, 9, 0, byte(exit)}), ASPath: []uint32{64496 + uint32(exit), uint32(n % 20_000), 64500}}})
		}
		return out
	}
	routes := float64(2 * len(exits) * total)
	var bytes float64
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		p := newPlan(b, exits)
		for reflector := range byte(2) {
			for exit := range exits {
				for n := 0; n < total; n += perUpdate {
					p.Apply(told(reflector, exit, n, n+perUpdate))
				}
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		bytes = float64(after.HeapAlloc-before.HeapAlloc) / routes
		runtime.KeepAlive(p)
	}
	b.ReportMetric(bytes, "bytes/route")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/routes, "ns/route")
}

// The best path is set aside for the standby, and comes back; a best path by another exit is none of it. Without a standby nothing is set aside.
func TestSetAside(t *testing.T) {
	client := netip.MustParseAddr("2001:db8:c::1")
	p := newPlan(t, three, vpn("a", nil), unicast("a"))
	if got := p.SetAside(near, "a"); len(got) != 0 {
		t.Errorf("without a standby: %s", changes(got))
	}
	p.Apply([]Update{vpn("b", nil)})
	if got := p.SetAside(near, "b"); len(got) != 0 {
		t.Errorf("the best path does not leave by b: %s", changes(got))
	}
	main := show(&Entry{NextHop: unicast("a").Route.NextHop})
	if got, want := changes(p.SetAside(near, "a")), main+" > -"; got != want {
		t.Errorf("set aside: %s, want %s", got, want)
	}
	if prefix, exit := p.Main(client); prefix != near || exit != "b" {
		t.Errorf("the main table leads through %q by %v, want b", exit, prefix)
	}
	p.Apply([]Update{vpn("c", nil)})
	if p.MainExit(client) != "b" {
		t.Errorf("an update of another exit brought %q", p.MainExit(client))
	}
	if got, want := changes(p.Restore(near, "a")), "- > "+main; got != want || p.MainExit(client) != "a" {
		t.Errorf("restored: %s, want %s", got, want)
	}
	p.SetAside(near, "a")
	better := unicast("b")
	better.Route.LocalPref = 300
	p.Apply([]Update{better})
	if p.MainExit(client) != "b" {
		t.Errorf("BGP has a best path by b, the main table leads through %q", p.MainExit(client))
	}
}

// The best path is set aside, too, where it leaves by an exit that is none of the plan's, until there is one by an exit that is.
func TestSetAsideElsewhere(t *testing.T) {
	p := newPlan(t, three[:2], vpn("a", nil), unicast("c"))
	main := show(&Entry{NextHop: unicast("c").Route.NextHop})
	if got := p.SetAside(near, "b"); len(got) != 0 {
		t.Errorf("nothing leaves by b: %s", changes(got))
	}
	if got, want := changes(p.SetAside(near, "")), main+" > -"; got != want || p.MainExit(near.Addr()) != "a" {
		t.Errorf("set aside: %s, want %s; the main table leads through %q", got, want, p.MainExit(near.Addr()))
	}
	if got, want := changes(p.Restore(near, "")), "- > "+main; got != want || p.MainExit(near.Addr()) != "" {
		t.Errorf("restored: %s, want %s; the main table leads through %q", got, want, p.MainExit(near.Addr()))
	}
	p.SetAside(near, "")
	better := unicast("a")
	better.Route.LocalPref = 300
	p.Apply([]Update{better})
	if got := p.MainExit(near.Addr()); got != "a" || changes(p.SetAside(near, "")) != "" {
		t.Errorf("BGP has a best path by a, the main table leads through %q", got)
	}
	if got := changes(p.SetAside(netip.MustParsePrefix("2001:db8:ffff::/48"), "")); got != "" {
		t.Errorf("of a prefix without routes: %s", got)
	}
}

// Two exits are sessions of one border router with one neighbour: local preference tells which of them the best path leaves by.
func TestOneNeighbourTwice(t *testing.T) {
	alike := func(preference uint32) func(*Route) {
		return func(r *Route) {
			r.RouterID, r.ASPath, r.LocalPref = vpn("a", nil).Route.RouterID, vpn("a", nil).Route.ASPath, preference
		}
	}
	best := unicast("b")
	alike(200)(best.Route)
	p := newPlan(t, three, vpn("a", nil), vpn("b", alike(200)), vpn("c", nil), best)
	if got := p.MainExit(near.Addr()); got != "b" {
		t.Errorf("the best path has b's local preference, and leaves by %q", got)
	}
	best.Route.LocalPref = 300 // as a reflector may set it
	p.Apply([]Update{best})
	if got := p.MainExit(near.Addr()); got != "a" {
		t.Errorf("no exit has the best path's local preference: it leaves by %q, want the first, a", got)
	}
}

// When what took over fails, too, the next takes over; an exit that is set aside is no standby while there is another; when all fail, it is BGP's best path.
func TestSetAsideAgain(t *testing.T) {
	client := netip.MustParseAddr("2001:db8:c::1")
	p := newPlan(t, three, vpn("a", nil), vpn("b", nil), vpn("c", nil), unicast("a"))
	leads := func(when, want string) {
		t.Helper()
		if got := p.MainExit(client); got != want {
			t.Errorf("%s: the main table leads through %q, want %q", when, got, want)
		}
	}
	p.SetAside(near, "a")
	leads("a fails", "b")
	if got := p.SetAside(near, "c"); len(got) != 0 {
		t.Errorf("nothing leaves by c: %s", changes(got))
	}
	p.SetAside(near, "b")
	leads("b fails, too", "c")
	p.SetAside(near, "c")
	leads("all fail", "a")
	p.Restore(near, "c")
	leads("c is well", "c")
	gone := unicast("a")
	gone.Route = nil
	p.Apply([]Update{gone})
	leads("BGP has no best path", "c")
	p.Restore(near, "a")
	p.Restore(near, "b")
	leads("all are well, and BGP has no best path", "c")

	p = newPlan(t, three[:2], vpn("a", nil), vpn("b", nil), unicast("a"))
	p.SetAside(near, "a")
	p.SetAside(near, "b")
	if got := p.SetAside(near, "a"); len(got) != 0 {
		t.Errorf("all fail still: %s", changes(got))
	}
	p.Restore(near, "b")
	leads("b is well, and a failed twice", "b")

	p = newPlan(t, three, vpn("a", nil), vpn("b", nil), vpn("c", nil), unicast("a"))
	p.SetAside(near, "a")
	withdrawn := vpn("b", nil)
	withdrawn.Route = nil
	p.Apply([]Update{gone, withdrawn})
	leads("b and the best path are withdrawn", "c")
}
