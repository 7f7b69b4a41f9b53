package route

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
	"plait.dev/plait/lab/netns"
)

var (
	near6 = netip.MustParseAddr("2001:db8:c000::1")
	near4 = netip.MustParseAddr("198.51.100.1")
	plain = netip.MustParseAddr("2001:db8:1:1::10") // an address of no exit
)

const nowhere = -1

// Packets from an exit's address leave by this exit or not at all; others take the main table's best path, or the standby.
func TestPackets(t *testing.T) {
	n := newNetwork(t)
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values([]egress.Entry(nil))))
	w := n.traffic(exits[0].Addresses[0], exits[1].Addresses[0], exits[0].Addresses[1], exits[1].Addresses[1], plain)
	want := map[uint64]int{}
	check := func(when string, from, to netip.Addr, exit int) {
		t.Helper()
		number := w.send(from, to)
		if (number == 0) != (exit == nowhere) {
			t.Errorf("%s: a packet from %v to %v: sent %v, want exit %d", when, from, to, number != 0, exit)
		}
		if number != 0 {
			want[number] = exit
		}
	}
	all := func(when string, a6, b6, a4, b4, other int) {
		t.Helper()
		for _, c := range []struct {
			from, to netip.Addr
			exit     int
		}{{exits[0].Addresses[0], near6, a6}, {exits[1].Addresses[0], near6, b6}, {exits[0].Addresses[1], near4, a4}, {exits[1].Addresses[1], near4, b4}, {plain, near6, other}} {
			check(when, c.from, c.to, c.exit)
		}
	}
	change := func(old, new *egress.Entry) {
		t.Helper()
		n.must(k.Apply([]egress.Change{{Old: old, New: new}}))
	}
	all("no routes", nowhere, nowhere, nowhere, nowhere, nowhere)
	n.must(k.Reconcile(slices.Values(some()))) // exit a has ::/0 too, exit b 0.0.0.0/0
	all("all routes", 0, 1, 0, 1, 0)
	check("through ::/0", exits[0].Addresses[0], netip.MustParseAddr("2001:db8:d000::1"), 0)
	check("exit b does not announce it", exits[1].Addresses[0], netip.MustParseAddr("2001:db8:d000::1"), nowhere)
	b, best := entry(102, "2001:db8:c000::/48", sids6[1]), entry(0, "2001:db8:c000::/48", hops6[0])
	change(&b, nil)
	all("exit b withdrew", 0, nowhere, 0, 1, 0)
	change(nil, &b)
	change(&best, nil)
	all("the standby", 0, 1, 0, 1, 1)
	other := entry(0, "2001:db8:c000::/48", hops6[1])
	change(nil, &best)
	journal = nil
	change(&best, &other)
	if len(journal) != 1 || !strings.HasPrefix(journal[0], "replace route") {
		t.Errorf("a change of next hop took %q, want one step", journal)
	}
	all("the best path is b's", 0, 1, 0, 1, 1)
	n.ip("-n " + n.server + " -6 rule del priority 500 from " + exits[0].Addresses[0].String())
	all("somebody took a rule", nowhere, 1, 0, 1, 1)
	n.must(k.Reconcile(slices.Values(some())))
	all("repaired", 0, 1, 0, 1, 0)
	if came := w.arrived(len(want)); !maps.Equal(came, want) {
		t.Errorf("packets came through %v, want %v", came, want)
	}
}

// flow is a source and a target.
type flow struct{ from, to netip.Addr }

// Random changes, from the plan, under traffic that does not stop. A packet sent between changes takes the way it should, or none. For a packet sent while
// the kernel changes, what is right before or after is right; and where there is a way before and after there is one meanwhile.
func TestChangesUnderTraffic(t *testing.T) {
	const rounds = 400
	n := newNetwork(t)
	k := n.kernel(nil)
	plan, err := egress.NewPlan(exits)
	n.must(err)
	n.must(k.Reconcile(plan.Entries()))
	var flows []flow
	for i := range 4 {
		for _, source := range []netip.Addr{exits[0].Addresses[0], exits[1].Addresses[0], plain} {
			flows = append(flows, flow{source, netip.MustParseAddr(fmt.Sprintf("2001:db8:c000:%d::1", i))})
		}
	}
	w := n.traffic(exits[0].Addresses[0], exits[1].Addresses[0], plain)
	r := rand.New(rand.NewPCG(1, 1))
	ways := []map[flow]int{rightWays(plan, flows)} // after each round
	var applied atomic.Int64                       // rounds that are done; the next one may be under way
	during := background(w, flows, &applied)
	want := map[uint64]int{}
	for range rounds {
		var updates []egress.Update
		for range 1 + r.IntN(4) {
			updates = append(updates, randomUpdate(r))
		}
		changes := plan.Apply(updates)
		ways = append(ways, rightWays(plan, flows))
		n.must(k.Apply(changes))
		applied.Add(1)
		for _, f := range flows {
			exit := ways[len(ways)-1][f]
			number := w.send(f.from, f.to)
			if (number == 0) != (exit == nowhere) {
				t.Fatalf("%v: sent %v, want exit %d", f, number != 0, exit)
			}
			if number != 0 {
				want[number] = exit
			}
		}
	}
	packets := during()
	came := w.arrived(len(want))
	for number, exit := range want {
		if is, there := came[number]; !there || is != exit {
			t.Errorf("packet %d came through %d (%v), want %d", number, is, there, exit)
		}
		delete(came, number)
	}
	through, refused := 0, 0
	for _, p := range packets {
		var possible []int
		for _, way := range ways[p.after : min(p.before+1, rounds)+1] {
			possible = append(possible, way[p.flow])
		}
		exit := nowhere
		if p.number != 0 {
			through++
			exit = came[p.number]
			delete(came, p.number)
		} else {
			refused++
		}
		if !slices.Contains(possible, exit) {
			t.Errorf("%v between rounds %d and %d: exit %d, possible are %v", p.flow, p.after, p.before+1, exit, possible)
		}
	}
	if len(came) > 0 {
		t.Errorf("packets came though the kernel had said there is no way: %v", came)
	}
	t.Logf("between changes %d packets; all the time %d, and %d refused", len(want), through, refused)
	if len(want) == 0 || through == 0 || refused == 0 {
		t.Error("one of these is nothing")
	}
}

// randomUpdate announces or withdraws something around the targets, of the exits or of the default table.
func randomUpdate(r *rand.Rand) egress.Update {
	exit := r.IntN(2)
	prefix := []string{"2001:db8:c000::/48", "2001:db8:c000::/62", "2001:db8:c000::/64", "2001:db8:c000:1::/64", "2001:db8:c000:2::/63", "::/0"}[r.IntN(6)] // in each other
	u := egress.Update{Key: egress.Key{Reflector: hops6[r.IntN(2)], Prefix: netip.MustParsePrefix(prefix)}}
	route := egress.Route{LocalPref: uint32(100 + r.IntN(3)), RouterID: netip.AddrFrom4([4]byte{10, 9, 0, byte(exit)}), ASPath: []uint32{uint32(64496 + exit)}}
	if r.IntN(3) == 0 {
		route.NextHop = hops6[exit]
	} else {
		u.Distinguisher = exits[exit].RouteTarget
		route.SID, route.RouteTargets = sids6[exit], []string{exits[exit].RouteTarget}
	}
	if r.IntN(3) == 0 {
		u.Route = &route
	}
	return u
}

// rightWays says by which exit the packets of each flow should leave: longest prefix, then best path before standby.
func rightWays(plan *egress.Plan, flows []flow) map[flow]int {
	out := map[flow]int{}
	for _, f := range flows {
		table := uint32(0)
		for _, e := range exits {
			if slices.Contains(e.Addresses, f.from) {
				table = e.Table
			}
		}
		var best *egress.Entry
		for e := range plan.Entries() {
			if e.Table == table && e.Prefix.Contains(f.to) && (best == nil || e.Prefix.Bits() > best.Prefix.Bits() || e.Prefix == best.Prefix && best.Standby) {
				best = &e
			}
		}
		out[f] = nowhere
		if best != nil {
			out[f] = max(slices.Index(sids6, best.SID), slices.Index(hops6, best.NextHop))
		}
	}
	return out
}

// packet was sent after so many rounds, and before the end of one more than that.
type packet struct {
	flow
	number        uint64
	after, before int64
}

// background sends on all flows in turn until the function it returns is called.
func background(w *traffic, flows []flow, applied *atomic.Int64) (stop func() []packet) {
	var sent []packet
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			p := packet{flow: flows[i%len(flows)], after: applied.Load()}
			p.number = w.send(p.from, p.to)
			p.before = applied.Load()
			sent = append(sent, p)
		}
	})
	once := sync.OnceFunc(func() { close(ended); group.Wait() })
	w.Cleanup(once) // before the sockets are closed
	return func() []packet { once(); return sent }
}

// A best path's next hop may be some hops away, but not behind the best path itself.
func TestNextHops(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	best := func(prefix, hop string) egress.Entry {
		return egress.Entry{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop)}
	}
	n.must(k.Reconcile(slices.Values([]egress.Entry{best("::/0", "fc00:2::5")})))
	n.same("recursive", n.lines("-6 route show default"), []string{"default via 2001:db8:1:2::1 dev s2 proto 112 metric 4112 onlink pref medium"})
	for _, c := range []struct{ prefix, hop, want string }{
		{"2001:db8:c000::/48", "2001:db8:99::1", "only over plait's own route ::/0 via 2001:db8:1:2::1"},
		{"198.51.100.0/24", "192.0.2.1", "network is unreachable; a route or a network to it is missing"},
		{"2001:db8:c000::/48", tunnelSource.String(), "none that can be used"},
	} {
		good, bad := best(c.prefix, map[bool]string{true: "10.1.0.1", false: "2001:db8:1:1::1"}[c.hop == "192.0.2.1"]), best(c.prefix, c.hop)
		n.must(k.Apply([]egress.Change{{New: &good}}))
		if err := k.Apply([]egress.Change{{Old: &good, New: &bad}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if left := n.lines("route show root " + c.prefix + " proto 112"); len(left) > 0 { // the old one is wrong by now
			t.Errorf("it left %q", left)
		}
	}
}

// Routes that nothing leads to any more go after what is new, and the shorter prefix first: packets for the longer one never take the way of a shorter one that is
// right for others only.
func TestNextHopsGoLast(t *testing.T) {
	n := newNetwork(t)
	journal := []string{}
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values([]egress.Entry{})))
	long, middle, short := entry(0, "2001:db8:c000::/48", hops6[0]), entry(0, "2001:db8:c000::/40", hops6[0]), entry(0, "2001:db8:c000::/36", hops6[1])
	n.must(k.Apply([]egress.Change{{New: &long}, {New: &middle}}))
	lost, gone := long, middle
	lost.NextHop, gone.NextHop = netip.MustParseAddr("2001:db8:99::1"), netip.MustParseAddr("2001:db8:99::1")
	journal = nil
	if err := k.Apply([]egress.Change{{Old: &long, New: &lost}, {Old: &middle, New: &gone}, {New: &short}}); err == nil {
		t.Fatal("a next hop that nothing leads to is no error")
	}
	var did []string
	for _, line := range journal {
		if verb, rest, _ := strings.Cut(line, " route "); !strings.Contains(rest, "no way") && (verb == "add" || verb == "delete") {
			did = append(did, verb+" "+strings.Fields(rest)[0])
		}
	}
	if want := []string{"add 2001:db8:c000::/36", "delete 2001:db8:c000::/40", "delete 2001:db8:c000::/48"}; !slices.Equal(did, want) {
		t.Errorf("got %q, want %q", did, want)
	}
}

// The way to a next hop may have several gateways, as that of a server with two switches: the best path takes the one that the kernel chooses for it.
func TestNextHopBehindSeveral(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.ip("-n " + n.server + " -6 route add fc00:99::/64 nexthop via 2001:db8:1:1::1 nexthop via 2001:db8:1:2::1")
	n.ip("-n " + n.server + " route add 192.0.2.0/24 nexthop via 10.1.0.1 nexthop via 10.2.0.1")
	for prefix, hop := range map[string]string{"2001:db8:c000::/48": "fc00:99::5", "198.51.100.0/24": "192.0.2.5"} {
		best := egress.Entry{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop)}
		n.must(k.Reconcile(slices.Values([]egress.Entry{best})))
		family := map[bool]string{true: "-4", false: "-6"}[best.Prefix.Addr().Is4()]
		if got := n.lines(family + " route show root " + prefix + " proto 112"); len(got) != 1 || !strings.Contains(got[0], " via ") {
			t.Errorf("best path to %s: %q", prefix, got)
		}
	}
}

// The encapsulation takes 64 bytes of the interface's 1500, and senders are told.
func TestMTU(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	w := n.traffic(exits[0].Addresses[0], exits[1].Addresses[1])
	for _, c := range []struct {
		from, to                         netip.Addr
		headers, level, option, dontFrag int
	}{
		{exits[0].Addresses[0], near6, 40 + 8, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
		{exits[1].Addresses[1], near4, 20 + 8, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
	} {
		raw, err := w.from[c.from].SyscallConn()
		n.must(err)
		n.must(raw.Control(func(fd uintptr) { n.must(unix.SetsockoptInt(int(fd), c.level, c.option, c.dontFrag)) }))
		for _, more := range []int{0, 1} {
			_, err := w.from[c.from].WriteToUDPAddrPort(make([]byte, 1500-64-c.headers+more), netip.AddrPortFrom(c.to, port))
			if errors.Is(err, unix.EMSGSIZE) != (more == 1) {
				t.Errorf("from %v, %d bytes more than fit: %v", c.from, more, err)
			}
		}
	}
}

// An interface that loses its carrier loses its next hops and their routes. Then the exits are unreachable; with the carrier Reconcile brings them back.
func TestCarrier(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	mine := func() []string {
		return slices.Concat(n.lines("nexthop show"), n.lines("-6 route show table all proto 112"), n.lines("-4 route show table all proto 112"))
	}
	before := mine()
	w := n.traffic(exits[1].Addresses[0])
	n.ip("-n " + n.asbr[0] + " link set u0 down")
	for deadline := time.Now().Add(20 * time.Second); len(n.lines("nexthop show")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the next hops are still there: the pages say otherwise")
		}
	}
	if w.send(exits[1].Addresses[0], near6) != 0 {
		t.Error("a packet of exit b found a way")
	}
	if err := k.Reconcile(slices.Values(some())); err == nil || !strings.Contains(err.Error(), "has no carrier") {
		t.Errorf("got %v, want that there is no carrier", err)
	}
	n.ip("-n " + n.asbr[0] + " link set u0 up")
	n.must(k.Reconcile(slices.Values(some())))
	n.same("with the carrier", mine(), before)
}

// Without the right to change routes the error says which right, and nothing is half done.
func TestNoRight(t *testing.T) {
	n := newNetwork(t)
	before := n.everything()
	err := netns.Do(n.server, func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil { // of this thread, which ends
			return err
		}
		k, err := Open(Config{Exits: exits, Interface: "s1", TunnelSource: tunnelSource})
		if err != nil {
			return err
		}
		defer k.Close()
		return k.Reconcile(slices.Values(some()))
	})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v", err)
	} else {
		t.Log(err)
	}
	n.same("without a right", n.everything(), before)
}
