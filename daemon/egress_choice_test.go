package daemon

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

var chooser = netip.MustParseAddr("2001:db8:c::2")

// choosing is a lever without a kernel: exits a, b and c reach the client, a is BGP's best path.
func choosing(t testing.TB, service Service, rules ...ServiceRule) *exits {
	t.Helper()
	c := Egress{Service: service, Rules: rules, MovedPercent: 100}
	x := &exits{log: io.Discard, journal: newJournal(), health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks(), brownouts: egress.NewBrownouts(), shares: egress.NewShares(), byExit: map[string]map[bool]netip.Addr{}}
	x.aside, x.outages, x.inquired, x.misplaced = map[putAside]time.Time{}, egress.NewOutages(), map[string]bool{}, make(chan struct{}, 1)
	var told []egress.Update
	for i, name := range []string{"a", "b", "c"} {
		e := egress.Exit{Name: name, RouteTarget: fmt.Sprint("65000:", i), Locators: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("2001:db8:f%d::/48", i))},
			Addresses: []netip.Addr{netip.MustParseAddr("2001:db8:1::" + name)}, Table: firstTable + uint32(i), Cost: 3 - i}
		c.Exits = append(c.Exits, e)
		x.byExit[name] = map[bool]netip.Addr{false: e.Addresses[0]}
		key := egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Distinguisher: name, Prefix: netip.MustParsePrefix("2001:db8:c::/48")}
		route := egress.Route{SID: e.Locators[0].Addr(), RouteTargets: []string{e.RouteTarget}, LocalPref: 200 - uint32(i), ASPath: []uint32{uint32(i + 1)},
			RouterID: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), NextHop: netip.MustParseAddr("2001:db8:1::1")}
		told = append(told, egress.Update{Key: key, Route: &route})
		if i == 0 {
			main := route
			key.Distinguisher, main.SID, main.RouteTargets = "", netip.Addr{}, nil
			told = append(told, egress.Update{Key: key, Route: &main})
		}
	}
	var err error
	if x.plan, err = egress.NewPlan(c.Exits); err != nil {
		t.Fatal(err)
	}
	x.plan.Apply(told)
	x.config = c
	x.choice = newChoice(&c, egress.NewWorth(nil, time.Time{}))
	return x
}

// roles writes what reachable says: the last part of addresses, + if they carry, - if they stand by, = for the best path's exit; own first.
func (x *exits) roles(token uint32, port uint16) string {
	own := netip.MustParseAddr("2001:db8:1::10")
	var out, first []string
	for _, a := range x.reachable(mptcp.Peer{Token: token, Client: chooser, Own: netip.AddrPortFrom(own, port)}) {
		s := strings.TrimPrefix(a.Addr.String(), "2001:db8:1::") + map[bool]string{true: "-", false: "+"}[a.Backup] + map[bool]string{true: "="}[a.Same] + map[bool]string{true: " avoided"}[a.Avoid]
		if a.Addr == own {
			first = append(first, s)
		} else {
			out = append(out, s)
		}
	}
	return strings.Join(append(first, out...), " ")
}

// measured tells of a flow of the client through each exit, with these round-trip times, in ms, and 10 Mbit/s.
func (x *exits) measuredRTT(second int, a, b, c uint32) {
	flows := map[bpf.FlowKey]egress.FlowCount{}
	for i, ms := range []uint32{a, b, c} {
		flows[bpf.FlowKey{LocalPort: uint16(i)}] = egress.FlowCount{Exit: "abc"[i : i+1], Moved: i > 0, Client: chooser, AckedBytes: 1_250_000 * uint64(second), SRTTUs: 1000 * ms}
	}
	x.traffic.Look(flows, time.Unix(int64(second), 0))
}

// shareBottleneck has a trial find that two exits share one on the way to the client.
func (x *exits) shareBottleneck(exit, with string) {
	loads := []egress.WayLoad{{Exit: with, Best: true, Client: chooser, Bytes: 1e6}, {Exit: exit, Client: chooser, Bytes: 1e6}}
	now := time.Now()
	x.shares.Look(loads, now, 1)
	tried, _ := x.shares.Look(loads, now, 1)
	x.shares.Found(tried[0], true, now)
}

func TestRoles(t *testing.T) {
	const managed, heldOut = 500, 499 // 5 %
	prefix := Selection{Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:c::/64")}}
	port := Selection{Ports: []uint16{443}}
	cgroup := Selection{Cgroups: []uint64{7}}
	x := choosing(t, Service{egress.Throughput, 5}, ServiceRule{port, Service{egress.Cheap, 5}}, ServiceRule{prefix, Service{egress.Latency, 5}}, ServiceRule{cgroup, Service{egress.Steady, 5}})
	x.services.prefixes = map[netip.Prefix]int{}
	for _, c := range []struct {
		what   string
		do     func()
		token  uint32
		port   uint16
		expect string
	}{
		{"all carry", nil, managed, 80, "10+ a+= b+ c+"},
		{"a trial leaves out one", func() { x.trials[chooser] = "b" }, managed, 80, "10+ a+= b- c+"},
		{"it found a bottleneck that a and b share", func() { delete(x.trials, chooser); x.shareBottleneck("b", "a") }, managed, 80, "10+ a+= b- c+"},
		{"a stream keeps both", func() { x.services.found(map[uint32]uint32{managed: 1}, nil) }, managed, 80, "10+ a+= b+ c+"},
		{"they share none", func() { x.services.found(map[uint32]uint32{managed: 0}, nil); x.shares = egress.NewShares() }, managed, 80, "10+ a+= b+ c+"},
		{"a held-out connection", nil, heldOut, 80, ""},
		{"the cheapest, by port", nil, managed, 443, "10- a-= b- c+"},
		{"its cgroup's", func() { x.services.found(map[uint32]uint32{managed: 1}, nil) }, managed, 80, "10+ a+= b+ c+"},
		{"by prefix, nothing measured", func() { x.services.prefixes[prefix.Prefixes[0]] = 1 }, managed, 80, "10+ a+= b- c-"},
		{"another is quicker, too soon", func() { x.measuredRTT(1, 40, 30, 20); x.requicken(time.Now()) }, managed, 80, "10+ a+= b- c-"},
		{"another is quicker", func() { x.quickest[chooser] = quickExit{"a", time.Now().Add(-stayFor)}; x.requicken(time.Now()) }, managed, 80, "10- a-= b- c+"},
		{"it is full", func() { x.full["c"] = true; x.quickest = map[netip.Addr]quickExit{} }, managed, 80, "10- a-= b+ c-"},
		{"it fails", func() { x.health.Fail("b", chooser, time.Now()) }, managed, 80, "10+ a+= c-"},
		{"the best path fails", func() { x.health.Fail("a", chooser, time.Now()); delete(x.full, "c") }, managed, 80, "10+ avoided c+"},
		{"it fails a held-out connection", nil, heldOut, 80, "10+ avoided c+"},
	} {
		if c.do != nil {
			c.do()
		}
		if got := x.roles(c.token, c.port); got != c.expect {
			t.Errorf("%s: %q, want %q", c.what, got, c.expect)
		}
	}
	const quicker = "exit c is quicker to 2001:db8:c::2 now (20.0 ms; a 40.0 ms): it carries what is for latency"
	if said := x.journal.decisions.entries; len(said) != 1 || said[0].Text != quicker {
		t.Errorf("said %v, want %q", said, quicker)
	}
}

// Of exits that share a bottleneck one is left: the best path's, if it is one of them, also one that is none of the configuration.
func TestDropShared(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 5})
	left := func(main string, exits ...string) string {
		carry := map[string]bool{}
		for _, e := range exits {
			carry[e] = true
		}
		x.dropShared(chooser, main, carry)
		return fmt.Sprintf("%q", slices.Sorted(maps.Keys(carry)))
	}
	for _, c := range []struct {
		main, exits, want string
		do                func()
	}{
		{"a", "a b c", `["a" "b" "c"]`, nil},
		{"", " a b", `["" "a" "b"]`, nil},
		{"a", "a b c", `["a" "c"]`, func() { x.shareBottleneck("b", "a") }},
		{"b", "a b c", `["b" "c"]`, nil},
		{"", " a b", `["" "a"]`, nil},
		{"c", "b c", `["b" "c"]`, nil},
		{"a", "a c", `["a"]`, func() { x.trials[chooser] = "c" }},
		{"c", "c", `["c"]`, nil},
	} {
		if c.do != nil {
			c.do()
		}
		if got := left(c.main, strings.Split(c.exits, " ")...); got != c.want {
			t.Errorf("best path by %q: of %q %s carry, want %s", c.main, c.exits, got, c.want)
		}
	}
}

// What is explained are the services that connections of the client can have: of rules by prefix the longest, and with that none by cgroup and not the rest's.
func TestExplainsServices(t *testing.T) {
	rule := func(of Selection, name string, s egress.Strategy) ServiceRule {
		of.Selector = name
		return ServiceRule{of, Service{s, 5}}
	}
	within := func(prefix string) Selection {
		return Selection{Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	port, cgroup := rule(Selection{Ports: []uint16{443}}, "port", egress.Cheap), rule(Selection{Cgroups: []uint64{7}}, "cgroup", egress.Steady)
	short, long, elsewhere := rule(within("2001:db8::/32"), "short", egress.Steady), rule(within("2001:db8:c::/48"), "long", egress.Cheap), rule(within("2001:db9::/32"), "elsewhere", egress.Cheap)
	for want, rules := range map[string][]ServiceRule{
		"throughput":                            nil,
		"throughput, port cheap, cgroup steady": {port, elsewhere, cgroup},
		"short steady, port cheap":              {cgroup, port, short},
		"long cheap":                            {short, long},
	} {
		var got []string
		for _, s := range choosing(t, Service{egress.Throughput, 5}, rules...).explain(chooser).Services {
			got = append(got, strings.TrimSpace(s.Selector+" "+string(s.Strategy)))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("explained are %q, want %q", got, want)
		}
	}
}

// An exit that loses packets of a stream stands by until data waits for the others.
func TestSpare(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	flows := map[bpf.FlowKey]egress.FlowCount{}
	for second, expect := range []string{"10+ a+= b+ c+", "10+ a+= b+ c+", "10- a-= b+ c+", "10- a-= b+ c+", "10+ a+= b+ c+"} {
		for i, exit := range []string{"a", "b", "c"} {
			sent := uint32(1000 * (1 + second))
			flows[bpf.FlowKey{LocalPort: uint16(i)}] = egress.FlowCount{Exit: exit, Client: chooser, AckedBytes: 1400 * uint64(sent), SentSegments: sent, Resent: map[string]uint32{"a": sent / 50}[exit], SRTTUs: 20_000, Waits: second >= 3}
		}
		at := time.Unix(int64(second), 0)
		x.traffic.Look(maps.Clone(flows), at)
		x.spare(at)
		if got := x.roles(500, 80); got != expect {
			t.Errorf("at the end of second %d: %q, want %q", second, got, expect)
		}
	}
}

// While twenty thousand clients are looked at for a quicker exit, others get their turn: new connections, and who judges failures.
func TestQuickestOfMany(t *testing.T) {
	x := choosing(t, Service{egress.Latency, 0})
	for i := range 20_000 {
		client := chooser.As16()
		client[13], client[14] = byte(i>>8), byte(i)
		x.quickest[netip.AddrFrom16(client)] = quickExit{"a", time.Now()}
	}
	ended := make(chan struct{})
	go func() { defer close(ended); x.reconsider(t.Context(), time.Now()) }()
	for turns := 0; ; turns++ {
		x.mu.Lock()
		clients := len(x.quickest)
		x.mu.Unlock()
		select {
		case <-ended:
			if turns < 20 {
				t.Errorf("others got %d turns while %d clients were looked at", turns, clients)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// A prefix that gains nothing has its other exits stand by; its connections and no others are looked at again.
func TestNotWorthIt(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 50})
	ends := mptcp.Ends{Local: netip.MustParseAddrPort("[2001:db8:1::10]:80"), Remote: netip.AddrPortFrom(chooser, 1000)}
	for i := range uint32(40) {
		x.roles(i*250, 80)
		x.transfer(flowTransfer{ends, i * 250, 1 << 20, 500_000 + i%7*1000})
	}
	x.worth.Tick(time.Now().Add(time.Minute))
	if got, want := x.roles(9999, 80), "10+ a+= b- c-"; got != want {
		t.Errorf("%q, want %q: %+v", got, want, x.known())
	}
	if e := x.explain(chooser); len(e.Services) != 1 || strings.Join(e.Services[0].Carry, " ") != "a" || e.Main != "a" {
		t.Errorf("explained as %+v", e)
	}
	if k := x.known(); len(k) != 1 || k[0].Managed != 20 || k[0].HeldOut != 20 || k[0].OneUntil.IsZero() || k[0].Low < 0.95 {
		t.Errorf("known: %+v", k)
	}
}

// Exits over their cap stand by until they are well below it, and new connections begin without exits where too much is moved.
func TestCaps(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	limit := func(mbps float64) {
		e := x.terms["b"]
		e.CapMbps = mbps
		x.terms["b"] = e
	}
	limit(9.5)
	x.mostMoved = 60
	x.measuredRTT(0, 10, 10, 10)
	x.measuredRTT(1, 10, 10, 10) // 10 Mbit/s each
	now := time.Now()
	if !x.fill(now) || x.roles(1, 80) != "" {
		t.Errorf("two thirds are moved, and new connections get %q", x.roles(1, 80))
	}
	x.mostMoved = 80
	if x.fill(now); x.roles(1, 80) != "10+ a+= b- c+" {
		t.Errorf("b is over its cap: %q", x.roles(1, 80))
	}
	limit(10.5)
	if x.fill(now.Add(capFor)) || !x.full["b"] {
		t.Error("b is not full any more just below its cap")
	}
	limit(12)
	if x.fill(now.Add(capFor - 1)) {
		t.Error("b is not full any more so soon")
	}
	if !x.fill(now.Add(capFor)) || x.roles(1, 80) != "10+ a+= b+ c+" {
		t.Errorf("b is far below its cap: %q", x.roles(1, 80))
	}
}

// Two plaits, of two network namespaces, may share the directories.
func TestMemoryOf(t *testing.T) {
	for state, want := range map[string]string{"": "/run/plait/", "/var/lib/plait:/var/lib/other": "/var/lib/plait/"} {
		t.Setenv("STATE_DIRECTORY", state)
		for _, name := range []string{"control", "other"} {
			if got := memoryOf("/run/plait/" + name); got != want+name+".egress-memory.json" {
				t.Errorf("STATE_DIRECTORY %q, control socket %s: %s", state, name, got)
			}
		}
	}
}

// What was found out is there for the next process, and a file that cannot be read is no reason not to come up.
func TestMemory(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 50})
	x.memory, x.log = t.TempDir()+"/memory.json", &bytes.Buffer{}
	if len(x.remember().Known()) != 0 {
		t.Error("something is known before the first process")
	}
	x.worth.Join(1, false)
	x.worth.Transfer(1, netip.MustParsePrefix("2001:db8:c::/48"), egress.Throughput, 1<<20, 1e6, time.Now())
	x.worth.Tick(time.Now().Add(time.Minute))
	x.keep()
	if k := x.remember().Known(); len(k) != 1 || k[0].Managed.Samples != 1 {
		t.Errorf("remembered %+v", k)
	}
	x.config.Exits[2].Cost++
	if k := x.remember().Known(); len(k) != 0 {
		t.Errorf("remembered %+v of other exits", k)
	}
	x.config.Exits[2].Cost--
	if err := os.WriteFile(x.memory, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k := x.remember().Known(); len(k) != 0 {
		t.Errorf("remembered %+v of nonsense", k)
	}
	if said := x.log.(*bytes.Buffer).String(); !strings.Contains(said, "what was measured of prefixes is lost, and is measured anew: read "+x.memory+": ") {
		t.Errorf("said %q, want which file that was in", said)
	}
}

// A best path that is set aside comes back when a client is well through its exit, not before one has tried.
func TestAside(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	now, prefix := time.Now(), netip.MustParsePrefix("2001:db8:c::/48")
	x.health.Fail("a", chooser, now)
	if x.setAside(prefix, "a", 2); x.plan.MainExit(chooser) != "b" {
		t.Fatalf("the main table leads through %q, want b", x.plan.MainExit(chooser))
	}
	if x.comeBack(now); x.plan.MainExit(chooser) != "b" {
		t.Error("the best path is back before anybody tried")
	}
	now = now.Add(time.Minute) // the hold-down is over, the exit is offered again
	x.health.Tick(now, func(netip.Addr) bool { return true })
	if x.comeBack(now); x.plan.MainExit(chooser) != "b" {
		t.Error("the best path is back before a client joined")
	}
	x.health.Proven("a", chooser, now)
	if x.comeBack(now); x.plan.MainExit(chooser) != "a" || len(x.aside) != 0 {
		t.Error("the best path is not back though a client came through it")
	}
}

// The client that would prove the exit leaves: the best path stays aside for a while all the same.
func TestAsideUnproven(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	now, prefix := time.Now(), netip.MustParsePrefix("2001:db8:c::/48")
	x.health.Fail("a", chooser, now)
	x.setAside(prefix, "a", 2)
	for range 2 { // the hold-down is over, then the time of the probe
		now = now.Add(time.Minute)
		x.health.Tick(now, func(netip.Addr) bool { return false })
	}
	if x.comeBack(now); x.plan.MainExit(chooser) != "b" {
		t.Error("the best path is back though nobody proved its exit")
	}
	if x.comeBack(now.Add(unproven)); x.plan.MainExit(chooser) != "a" || len(x.aside) != 0 {
		t.Error("the best path is not back though it has rested")
	}
}

// What stands by is explained with its reason, and so are the connections held out.
func TestExplainStandby(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 5})
	e := x.terms["b"]
	e.CapMbps = 1
	x.terms["b"], x.full["b"] = e, true
	got := x.explain(chooser)
	for _, w := range got.Ways {
		if (w.StandsBy != "") != (w.Exit == "b") || w.Exit == "b" && w.StandsBy != "it carries as much as its cap_mbps of 1 allows" {
			t.Errorf("exit %s stands by because %q", w.Exit, w.StandsBy)
		}
	}
	if s := got.Services; len(s) != 1 || s[0].HoldoutPercent != 5 || strings.Join(s[0].Carry, " ") != "a c" {
		t.Errorf("services: %+v", s)
	}
}

// Where no exit brings packets to the client, all that connections have is the best path.
func TestExplainFailed(t *testing.T) {
	x := choosing(t, Service{egress.Latency, 0})
	for _, exit := range []string{"a", "b", "c"} {
		x.health.Fail(exit, chooser, time.Now())
	}
	if got, s := x.roles(500, 80), x.explain(chooser).Services[0]; got != "10+ avoided" || strings.Join(s.Carry, " ") != "a" || !strings.Contains(s.Reason, "no exit brings packets") {
		t.Errorf("%s is explained by %+v", got, s)
	}
}

// Of a bottleneck that two exits share is said who stands by for it now: after the best path has moved it is the other one, and nobody where one of the two carries nothing anyway.
func TestExplainShared(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 5})
	standBy := func() (out string) {
		for _, w := range x.explain(chooser).Ways {
			if w.StandsBy != "" {
				out += w.Exit + ": " + w.StandsBy + "; "
			}
		}
		return out
	}
	main := egress.Update{Key: egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Prefix: netip.MustParsePrefix("2001:db8:c::/48")}}
	for _, c := range []struct {
		what, want string
		do         func()
	}{
		{"nothing is known", "", func() {}},
		{"b shares with a, the best path's", "b: it shares a bottleneck with exit a on the way to this client; ", func() { x.shareBottleneck("b", "a") }},
		{"a fails the client", "", func() { x.health.Fail("a", chooser, time.Now()) }},
		{"the best path is b's", "a: it shares a bottleneck with exit b on the way to this client; ", func() {
			x.health = egress.NewHealth()
			main.Route = &egress.Route{LocalPref: 300, ASPath: []uint32{2}, RouterID: netip.AddrFrom4([4]byte{10, 0, 0, 1}), NextHop: netip.MustParseAddr("2001:db8:1::1")}
			x.plan.Apply([]egress.Update{main})
		}},
		{"a trial goes on", "c: it is left out for a moment, to see whether it shares a bottleneck with the best path's exit; ", func() { x.shares = egress.NewShares(); x.trials[chooser] = "c" }},
	} {
		if c.do(); standBy() != c.want {
			t.Errorf("%s: %q, want %q", c.what, standBy(), c.want)
		}
	}
}

// What took over fails as well: the next takes over, and each comes back when it is well.
func TestAsideAgain(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	now, prefix := time.Now(), netip.MustParsePrefix("2001:db8:c::/48")
	for _, exit := range []string{"a", "b"} {
		x.health.Fail(exit, chooser, now)
		x.setAside(prefix, exit, 2)
	}
	if got := x.plan.MainExit(chooser); got != "c" {
		t.Fatalf("the main table leads through %q, want c", got)
	}
	x.health.Tick(now.Add(time.Minute), func(netip.Addr) bool { return true })
	for _, want := range []string{"b", "a"} {
		x.health.Proven(want, chooser, now)
		if x.comeBack(now); x.plan.MainExit(chooser) != want {
			t.Errorf("%s is well, and the main table leads through %q", want, x.plan.MainExit(chooser))
		}
	}
}

// Nothing that run started works on what close has closed.
func TestCloseWaits(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	ended := false
	x.running.Go(func() { time.Sleep(20 * time.Millisecond); ended = true })
	if err := x.close(); err != nil || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
}

func TestOverdue(t *testing.T) {
	long := monotonicNs() - 2*overdueNs
	for name, c := range map[string]struct {
		stats bpf.FlowStats
		want  bool
	}{
		"no timer, no answer":   {bpf.FlowStats{Armed: bpf.FlowRefused, AskedAtNs: long}, true},
		"no timer, just asked":  {bpf.FlowStats{Armed: bpf.FlowRefused, AskedAtNs: monotonicNs()}, false},
		"no timer, not asked":   {bpf.FlowStats{Armed: bpf.FlowRefused}, false},
		"a timer is to tell":    {bpf.FlowStats{AskedAtNs: long}, false},
		"it is told of already": {bpf.FlowStats{Armed: bpf.FlowRefused, AskedAtNs: long, StalledAtNs: long + 1}, false},
	} {
		if got := overdue(&c.stats); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
