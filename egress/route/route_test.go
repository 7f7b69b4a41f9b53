package route

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
	"plait.dev/plait/lab/netns"
)

// some entries of every kind.
func some() []egress.Entry {
	return []egress.Entry{
		entry(101, "2001:db8:c000::/48", sids6[0]), entry(102, "2001:db8:c000::/48", sids6[1]), entry(101, "::/0", sids6[0]),
		entry(101, "198.51.100.0/24", sids4[0]), entry(102, "0.0.0.0/0", sids4[1]),
		entry(0, "2001:db8:c000::/48", hops6[0]), entry(0, "2001:db8:c000::/48", sids6[1]),
		entry(0, "198.51.100.0/24", hops4[0]), entry(0, "198.51.100.0/24", sids4[1]), entry(0, "198.51.101.0/24", hops6[0]),
	}
}

// order is in which order a journal has kinds of things.
func order(journal []string) string {
	var out []string
	for _, line := range journal {
		word := strings.Fields(line)
		if word[1] == "rule" {
			word[1] += " " + strings.Trim(word[2], ":")
		}
		out = append(out, word[1])
	}
	return strings.Join(slices.Compact(out), ", ")
}

// What is put into the kernel is what ip shows, a second time changes nothing, and taken back leaves the host as it was.
func TestReconcile(t *testing.T) {
	n := newNetwork(t)
	before := n.everything()
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values(some())))
	if got, want := order(journal), "tunnel, rule 501, nexthop, route, rule 500, address"; got != want {
		t.Errorf("made in the order %s, want %s", got, want)
	}
	for _, c := range []struct{ list, want string }{
		{"-6 route show table 101", `2001:db8:c000::/48 nhid 1879048192 encap seg6 mode encap segs 1 [ fc00:1:0:6:: ] dev s1 proto 112 metric 4112 pref medium
			default nhid 1879048192 encap seg6 mode encap segs 1 [ fc00:1:0:6:: ] dev s1 proto 112 metric 4112 pref medium`},
		{"-6 route show table 102", `2001:db8:c000::/48 nhid 1879048193 encap seg6 mode encap segs 1 [ fc00:2:0:6:: ] dev s1 proto 112 metric 4112 pref medium`},
		{"-4 route show table 101", `198.51.100.0/24 nhid 1879048194 encap seg6 mode encap segs 1 [ fc00:1:0:4:: ] dev s1 proto 112 metric 4112`},
		{"-4 route show table 102", `default nhid 1879048195 encap seg6 mode encap segs 1 [ fc00:2:0:4:: ] dev s1 proto 112 metric 4112`},
		{"-6 route show proto 112", `2001:db8:c000::/48 nhid 1879048193 encap seg6 mode encap segs 1 [ fc00:2:0:6:: ] dev s1 metric 4113 pref medium
			2001:db8:c000::/48 via 2001:db8:1:1::1 dev s1 metric 4112 onlink pref medium`},
		{"-4 route show proto 112", `198.51.100.0/24 nhid 1879048195 encap seg6 mode encap segs 1 [ fc00:2:0:4:: ] dev s1 metric 4113
			198.51.100.0/24 via 10.1.0.1 dev s1 metric 4112 onlink
			198.51.101.0/24 via inet6 2001:db8:1:1::1 dev s1 metric 4112 onlink`},
		{"-6 rule", `0: from all lookup local
			32766: from all lookup main
			500: from 2001:db8:1::a lookup 101 proto 112
			500: from 2001:db8:1::b lookup 102 proto 112
			501: from 2001:db8:1::a unreachable proto 112
			501: from 2001:db8:1::b unreachable proto 112`},
		{"-4 rule list priority 501", `501: from 203.0.113.1 unreachable proto 112
			501: from 203.0.113.2 unreachable proto 112`},
	} {
		want := strings.Split(c.want, "\n")
		for i := range want {
			want[i] = strings.TrimSpace(want[i])
		}
		n.same(c.list, n.lines(c.list), want)
	}
	var addresses []string
	for _, line := range n.lines("-o addr show dev s1 scope global") {
		if word := strings.Fields(line); slices.Contains(word, "deprecated") {
			addresses = append(addresses, word[3])
		}
	}
	n.same("addresses", addresses, []string{"203.0.113.1/32", "203.0.113.2/32", "2001:db8:1::a/128", "2001:db8:1::b/128"})
	n.same("next hops", n.lines("nexthop show"), []string{
		"id 1879048192 encap seg6 mode encap segs 1 [ fc00:1:0:6:: ] dev s1 scope link proto 112",
		"id 1879048193 encap seg6 mode encap segs 1 [ fc00:2:0:6:: ] dev s1 scope link proto 112",
		"id 1879048194 encap seg6 mode encap segs 1 [ fc00:1:0:4:: ] dev s1 scope host proto 112",
		"id 1879048195 encap seg6 mode encap segs 1 [ fc00:2:0:4:: ] dev s1 scope host proto 112"})
	after := n.everything()
	journal = nil
	n.must(k.Reconcile(slices.Values(some())))
	if len(journal) > 0 {
		t.Errorf("a second time it did %q", journal)
	}
	n.same("after the second time", n.everything(), after)
	n.must(k.Remove())
	if got, want := order(journal), "address, rule 500, route, nexthop, rule 501, tunnel"; got != want {
		t.Errorf("taken away in the order %s, want %s", got, want)
	}
	n.same("after Remove", n.everything(), before)
	if _, err := os.Stat(k.config.Memory); err == nil {
		t.Error("Remove left the file")
	}
	journal = nil
	n.must(k.Remove())
	if len(journal) > 0 {
		t.Errorf("removing nothing did %q", journal)
	}
}

// A process died; others broke what it left; the routes changed meanwhile. The next process finds its own and makes it right, with no step too many.
func TestReconcileAfterCrash(t *testing.T) {
	n := newNetwork(t)
	n.ip("netns exec " + n.server + " ip sr tunsrc set fc00::5")
	before := n.everything()
	first := n.kernel(nil)
	n.must(first.Reconcile(slices.Values(some())))
	want := n.everything()
	first.Close()
	for _, broken := range []string{
		"-6 route del 2001:db8:c000::/48 table 101 proto 112",
		"-6 route replace 2001:db8:c000::/48 encap seg6 mode encap segs fc00:1:0:6:: dev s1 table 102 proto 112 metric 4112", // through the wrong exit
		"route add 192.0.2.0/24 dev s1 table 102 proto 112 metric 4112",                                                      // withdrawn since
		"-6 route add 2001:db8:d000::/48 dev s1 table 4711 proto 112",                                                        // of an exit that is no more
		"-6 rule del priority 501 from 2001:db8:1::a",
		"rule del priority 500 from 203.0.113.2",
		"rule add priority 500 from 203.0.113.9 lookup 109 proto 112",
		"addr del 203.0.113.1/32 dev s1",
	} {
		n.ip("-n " + n.server + " " + broken)
	}
	var journal []string
	second := n.open(Config{Exits: exits, Interface: "s1", TunnelSource: tunnelSource, Memory: first.config.Memory}, &journal)
	n.must(second.Reconcile(slices.Values(some())))
	n.same("after the crash", n.everything(), want)
	s1 := n.link("s1")
	n.same("journal", journal, []string{
		"add rule 501: from 2001:db8:1::a unreachable: missing",
		"delete rule 500: from 203.0.113.9 lookup 109: no longer wanted",
		"replace route 2001:db8:c000::/48 nhid 1879048193 encap seg6 mode encap segs fc00:2:0:6:: " + s1 + " table 102 metric 4112: was not as wanted: route 2001:db8:c000::/48 " + s1 + " table 102 metric 4112",
		"delete route 192.0.2.0/24 " + s1 + " table 102 metric 4112: no longer wanted",
		"delete route 2001:db8:d000::/48 " + s1 + " table 4711 metric 1024: no longer wanted",
		"add route 2001:db8:c000::/48 nhid 1879048192 encap seg6 mode encap segs fc00:1:0:6:: " + s1 + " table 101 metric 4112: missing",
		"add rule 500: from 203.0.113.2 lookup 102: missing",
		"add address 203.0.113.1 " + s1 + ": missing",
	})
	n.must(second.Remove())
	n.same("after Remove", n.everything(), before)
}

// What Release has left takes the main table until the exits' tables are right again, which takes seconds with full ones: no address is unreachable meanwhile.
func TestReconcileAfterRelease(t *testing.T) {
	n := newNetwork(t)
	first := n.kernel(nil)
	n.must(first.Reconcile(slices.Values(some())))
	want := n.everything()
	n.must(first.Release())
	first.Close()
	n.ip("-n " + n.server + " -6 route del 2001:db8:c000::/48 table 101 proto 112")
	var journal []string
	second := n.open(Config{Exits: exits, Interface: "s1", TunnelSource: tunnelSource, Memory: first.config.Memory}, &journal)
	n.must(second.Reconcile(slices.Values(some())))
	n.same("with the next one", n.everything(), want)
	var order []string
	for _, step := range journal {
		if kind := strings.Fields(strings.ReplaceAll(step, "rule 50", "rule_50"))[1]; len(order) == 0 || order[len(order)-1] != kind {
			order = append(order, kind)
		}
	}
	if !slices.Equal(order, []string{"route", "rule_500:", "rule_501:"}) {
		t.Errorf("made in the order %q", order)
	}
}

// Without plait these commands take back what it made; docs/egress/route.md has them. A process that is still there puts everything back.
func TestByHand(t *testing.T) {
	n := newNetwork(t)
	before := n.everything()
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	want := n.everything()
	page, err := os.ReadFile("../../docs/egress/route.md")
	n.must(err)
	_, hand, _ := strings.Cut(string(page), "## By hand")
	_, hand, found := strings.Cut(hand, "```sh\n")
	hand, _, closed := strings.Cut(hand, "```")
	if !found || !closed {
		t.Fatal("docs/egress/route.md has no commands under \"By hand\"")
	}
	hand = strings.NewReplacer("eth0", "s1", "2001:db8:1::a", exits[0].Addresses[0].String()).Replace(hand)
	cmd := exec.Command("ip", "netns", "exec", n.server, "bash", "-exc", hand)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.same("by hand", n.everything(), before)
	n.must(k.Reconcile(slices.Values(some())))
	n.same("after Reconcile", n.everything(), want)
}

// What others made stays, also where it is in the way.
func TestForeign(t *testing.T) {
	n := newNetwork(t)
	for _, theirs := range []string{
		"-6 route add 2001:db8:c000::/48 via 2001:db8:1:2::1 metric 20 proto bgp", // goes before plait's
		"route add 198.51.100.0/24 via 10.2.0.1 metric 4112 proto static",         // in the place of plait's
		"-6 route add 2001:db8:c000::/48 dev s2 table 102 metric 4112 proto 4",    // in a table of plait's
		"-6 route add 2001:db8:e000::/48 dev s2 table 555 proto 186",
		"-6 nexthop add id 77 dev s1 encap seg6 mode encap segs fc00:1:0:6::", // what plait would make
		"-6 route add 2001:db8:c000::/48 nhid 77 metric 111 proto 4",
		"-6 rule add priority 500 from 2001:db8:1::a lookup 101", // what plait would do
		"-6 rule add priority 400 from 2001:db8:1:1::10 lookup main",
		"-6 addr add 2001:db8:1::a/128 dev s1",
	} {
		n.ip("-n " + n.server + " " + theirs)
	}
	n.ip("netns exec " + n.server + " ip sr tunsrc set " + tunnelSource.String())
	before := n.everything()
	var journal []string
	k := n.kernel(&journal)
	err := k.Reconcile(slices.Values(some()))
	for _, want := range []string{"use table 102 for exit b: it holds routes of others, as route 2001:db8:c000::/48", "add route 198.51.100.0/24 via 10.1.0.1", "file exists", "another table"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if want := "leave address 2001:db8:1::a " + n.link("s1") + ": it is there already, made by somebody else"; !slices.ContainsFunc(journal, func(s string) bool { return strings.HasPrefix(s, want) }) {
		t.Errorf("journal lacks %q: %q", want, journal)
	}
	if rules := n.lines("-6 rule list from 2001:db8:1::b"); !slices.Equal(rules, []string{"501: from 2001:db8:1::b unreachable proto 112"}) {
		t.Errorf("exit b, whose table has somebody's route, has the rules %q", rules)
	}
	after := n.everything()
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("%s is gone", line)
		}
	}
	n.must(k.Remove())
	n.same("after Remove", n.everything(), before)
}

// A next hop of somebody else that has an identifier of plait's stays, and plait's get others.
func TestForeignNexthop(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some()[:1])))
	for i := range uint32(3) {
		n.ip(fmt.Sprintf("-n %s nexthop add id %d blackhole proto 4", n.server, firstNexthop+2+2*i))
	}
	theirs := n.lines("nexthop show proto 4")
	if err := k.Reconcile(slices.Values(some())); err != nil { // what others made since plait last looked is seen at the next time
		n.must(k.Reconcile(slices.Values(some())))
	}
	n.same("theirs", n.lines("nexthop show proto 4"), theirs)
	if ours := n.lines("nexthop show proto 112"); len(ours) != 4 {
		t.Errorf("next hops of plait's: %q, want one for each exit and family", ours)
	}
}

// SIDs that come and go, of routes that stay, do not leave a next hop each: an exit has some at a time, but a comparison may be minutes away.
func TestSIDsComeAndGo(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	const prefixes, rounds = 400, 5
	var now [prefixes]*egress.Entry
	for round := range rounds {
		var changes []egress.Change
		for i := range prefixes {
			next := entry(101, fmt.Sprintf("2001:db8:d000:%x::/64", i), netip.MustParseAddr(fmt.Sprintf("fc00:1:0:%x::%x", 0x100+round, i)))
			changes, now[i] = append(changes, egress.Change{Old: now[i], New: &next}), &next
		}
		n.must(k.Apply(changes))
	}
	if there := len(n.lines("nexthop show proto 112")); there > prefixes+4+mostIdle {
		t.Errorf("%d next hops for routes to %d SIDs", there, prefixes+4)
	}
	if there := len(n.lines("-6 route show table 101 proto 112")); there != prefixes+2 {
		t.Errorf("%d routes, want %d", there, prefixes+2)
	}
	var changes []egress.Change
	for _, old := range now {
		changes = append(changes, egress.Change{Old: old})
	}
	n.must(k.Apply(changes))
	n.must(k.Reconcile(slices.Values(some())))
	if there := n.lines("nexthop show proto 112"); len(there) != 4 {
		t.Errorf("next hops after a comparison: %q", there)
	}
}

// Linux may refuse some of so many new next hops in a row, and take them a moment later. After how many depends on what the machine has made before.
func TestManySIDs(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	changes := make([]egress.Change, 20_000)
	for i := range changes {
		e := entry(101, fmt.Sprintf("2001:db8:d000:%x::/64", i), netip.MustParseAddr(fmt.Sprintf("fc00:1:0:100::%x", i)))
		changes[i].New = &e
	}
	n.must(k.Apply(changes))
}

// Where the tables cannot be made right, because the host's address is gone or the interface is down, packets of an exit's address are kept from the main table all the same.
func TestBoundWithoutTables(t *testing.T) {
	for _, broken := range []string{"addr del " + tunnelSource.String() + "/64 dev s1", "link set s1 down"} {
		t.Run(broken, func(t *testing.T) {
			n := newNetwork(t)
			n.must(netns.Do(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/s1/keep_addr_on_down", []byte("1"), 0) }))
			k := n.kernel(nil)
			n.must(k.Reconcile(slices.Values(some())))
			n.ip("-n " + n.server + " " + broken)
			for _, x := range exits {
				for i, family := range []string{"-6", "-4"} {
					n.ip(fmt.Sprintf("-n %s %s rule del priority 500 from %v", n.server, family, x.Addresses[i]))
					n.ip(fmt.Sprintf("-n %s %s rule del priority 501 from %v", n.server, family, x.Addresses[i]))
				}
			}
			<-k.Lost()
			if _, err := k.Repair(slices.Values(some())); err == nil {
				t.Error("nothing is missing")
			}
			for _, x := range exits {
				for i, family := range []string{"-6", "-4"} {
					if len(n.lines("-o addr show to "+x.Addresses[i].String())) == 0 { // the kernel took it along
						continue
					}
					if rules := n.lines(fmt.Sprintf("%s rule list from %v", family, x.Addresses[i])); !slices.Contains(rules, fmt.Sprintf("501: from %v unreachable proto 112", x.Addresses[i])) {
						t.Errorf("%v has the rules %q", x.Addresses[i], rules)
					}
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n " + n.server + " link add idle type veth")
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Interface = "nowhere" }, "find interface nowhere: no such device"},
		{func(c *Config) { c.Interface = "idle" }, "it is down, and the kernel takes no routes for it; set it up with: ip link set idle up"},
		{func(c *Config) { c.TunnelSource = netip.MustParseAddr("2001:db8::77") }, "this host has no such address"},
		{func(c *Config) { c.TunnelSource = exits[0].Addresses[0] }, "it is an address of exit a"},
		{func(c *Config) { c.TunnelSource = hops4[0] }, "it is no IPv6 unicast address"},
		{func(c *Config) { c.Exits = []egress.Exit{{Name: "x"}} }, "it needs a route target or SIDs"},
	} {
		config := Config{Exits: exits, Interface: "s1", TunnelSource: tunnelSource}
		c.change(&config)
		before := n.everything()
		n.in(n.server, func() error {
			k, err := Open(config)
			if err == nil {
				defer k.Close()
				err = k.Reconcile(slices.Values(some()))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			return nil
		})
		n.same(c.want, n.everything(), before)
	}
}

// A route of somebody else where a best path should be stays, whatever becomes of the best path, and gives way when it is gone.
func TestForeignRoute(t *testing.T) {
	for _, c := range []struct {
		ip, prefix, via string
		hops            []netip.Addr
	}{{"-6", "2001:db8:c000::/48", "2001:db8:1:2::1", hops6}, {"-4", "198.51.100.0/24", "10.2.0.1", hops4}} {
		t.Run(c.ip, func(t *testing.T) { foreignRoute(newNetwork(t), c.ip, c.prefix, c.via, c.hops) })
	}
}

func foreignRoute(n *network, ip, prefix, via string, hops []netip.Addr) {
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values([]egress.Entry{})))
	shown := func() []string { return n.lines(ip + " route show " + prefix) }
	n.ip("-n " + n.server + " " + ip + " route add " + prefix + " via " + via + " proto static metric 4112")
	theirs := shown()
	first, second := entry(0, prefix, hops[0]), entry(0, prefix, hops[1])
	for _, change := range []egress.Change{{New: &first}, {Old: &first, New: &second}} {
		if err := k.Apply([]egress.Change{change}); !errors.Is(err, unix.EEXIST) {
			n.Errorf("%s: got %v, want that it is taken", ip, err)
		}
		n.same("beside somebody else's", shown(), theirs)
	}
	n.must(k.Apply([]egress.Change{{Old: &second}}))
	n.same("withdrawn", shown(), theirs)
	n.ip("-n " + n.server + " " + ip + " route del " + prefix)
	for _, change := range []egress.Change{{New: &first}, {Old: &first, New: &second}} {
		n.must(k.Apply([]egress.Change{change}))
	}
	if got := shown(); len(got) != 1 || got[0] == theirs[0] {
		n.Errorf("%s: when theirs is gone there is %q, want plait's", ip, got)
	}
}

// A file that was not written whole keeps plait neither from the kernel nor in it.
func TestMemoryBroken(t *testing.T) {
	n := newNetwork(t)
	before := n.everything()
	var journal []string
	k := n.kernel(&journal)
	n.must(os.WriteFile(k.config.Memory, []byte(`{"bef`), 0o600))
	n.must(k.Reconcile(slices.Values(some())))
	if len(journal) == 0 || !strings.Contains(journal[0], "the tunnel source before plait: read "+k.config.Memory) {
		t.Errorf("the journal does not tell: %q", journal)
	}
	n.must(k.Remove())
	n.same("after Remove", n.everything(), before)
	n.must(k.Reconcile(slices.Values(some())))
	n.must(os.WriteFile(k.config.Memory, nil, 0o600))
	n.must(k.Remove())
	n.same("after Remove without memory", n.everything(), before)
	if _, err := os.Stat(k.config.Memory); err == nil {
		t.Error("Remove left the file")
	}
}
