package daemon

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
)

// Services, costs, caps and shares change while plait is up; what sessions, tables and addresses are made of does not.
func TestRereadEgress(t *testing.T) {
	text := "congestion:\n" + strings.Replace(egressSection, "%s", "on", 1) + "  rules:\n    - {port: 443, strategy: cheap}\n"
	inDirectory(t, text)
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		old, new string
		refused  bool
	}{
		{"  rules:\n    - {port: 443, strategy: cheap}\n", "  strategy: latency\n  moved_percent: 30\n", false},
		{"holdout_percent: 0", "holdout_percent: 1", false},
		{`addresses: "2001:db8:1::a"`, `addresses: "2001:db8:1::a", cost: 7, cap_mbps: 100`, false},
		{`addresses: "2001:db8:1::a"`, `addresses: "2001:db8:1::d"`, true},
		{"name: transit-a", "name: transit-c", true},
		{"mode: on", "mode: observe", true},
	} {
		changed := strings.Replace(text, x.old, x.new, 1)
		if err := os.WriteFile("plait.yaml", []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reread("plait.yaml"); changed == text || (err != nil) != x.refused {
			t.Errorf("%s: refused: %v, want %v", x.new, err, x.refused)
		}
	}
}

// A section that is off can be prepared while plait is up; to switch it on takes a start.
func TestRereadEgressOff(t *testing.T) {
	text := "congestion:\n" + strings.Replace(egressSection, "%s", "off", 1)
	inDirectory(t, text)
	c, err := ReadConfig("plait.yaml")
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(text, "name: transit-a", "name: transit-c", 1)
	for changed, refused := range map[string]bool{other: false, strings.Replace(other, "mode: off\negress:\n  mode: off", "mode: off\negress:\n  mode: on", 1): true, "congestion: {mode: off}\n": false} {
		if err := os.WriteFile("plait.yaml", []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reread("plait.yaml"); changed == text || (err != nil) != refused {
			t.Errorf("%s\nrefused: %v, want %v", changed, err, refused)
		}
	}
}

// Connections have what the configuration of now says, those of a cgroup also when its rule is another one by then.
func TestEgressReload(t *testing.T) {
	const managed = 500
	rule := func(s Selection, strategy egress.Strategy) ServiceRule {
		return ServiceRule{s, Service{strategy, 5}}
	}
	port, first, second := Selection{Ports: []uint16{443}}, Selection{Cgroups: []uint64{7}}, Selection{Cgroups: []uint64{8}}
	x := choosing(t, Service{egress.Throughput, 5}, rule(port, egress.Throughput), rule(first, egress.Throughput), rule(second, egress.Cheap))
	x.services.found(map[uint32]uint32{managed: x.services.numbers[8]}, nil)
	expect := func(when, want string) {
		t.Helper()
		if got := x.roles(managed, 80); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("at first", "10- a-= b- c+")
	c := x.config
	c.Exits = slices.Clone(c.Exits)
	c.Exits[0].Cost, c.Exits[1].CapMbps = 0, 10
	c.Rules = []ServiceRule{rule(second, egress.Cheap), rule(first, egress.Throughput)}
	reload := func() {
		t.Helper()
		if err := x.reload(&c); err != nil {
			t.Fatal(err)
		}
	}
	reload()
	expect("with other costs, and the rule at another place", "10+ a+= b- c-")
	x.full["b"] = true
	c.Rules = nil
	reload()
	expect("without rules", "10+ a+= b- c+")
	c.Exits = slices.Clone(c.Exits)
	c.Exits[1].CapMbps = 0
	reload()
	expect("without the cap", "10+ a+= b+ c+")
	c.MovedPercent = 0
	reload()
	if !x.moved {
		t.Error("nothing may leave by other exits, and connections still begin with them")
	}
}

// The kernel half tells flows by their cgroups as the configuration numbers them when they begin.
func TestFlowsOfCgroups(t *testing.T) {
	h := newHost(t)
	peer := h.joined()
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	outer := h.group(filepath.Join(h.cgroup, "outer"))
	inner := h.group(filepath.Join(outer, "inner"))
	id, err := cgroupID(outer)
	h.must(err)
	begin := func() pair {
		h.enter(inner)
		defer h.enter(h.cgroup)
		p, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
		h.must(err)
		h.Cleanup(p.close)
		h.transfers("in a cgroup", p)
		return p
	}
	var flows []pair
	for _, numbers := range []map[uint64]uint32{nil, {id: 3}, {id: 4}, {}} {
		h.must(f.numberCgroups(numbers))
		flows = append(flows, begin())
	}
	for i, want := range []uint32{0, 3, 4, 0} {
		if s, ok := f.stats(endsOfServer(flows[i])); !ok || s.Rule != want {
			t.Errorf("flow %d: known %v, number %d, want %d", i, ok, s.Rule, want)
		}
	}
}

// What the lever egress cannot do keeps no connection under the old rules of the lever congestion.
func TestReloadEgressFails(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	c := h.connect(0, "")
	h.uses("before", c, bpf.Name, bpf.Name)
	d.exits = choosing(t, Service{egress.Throughput, 0})
	d.exits.flows = &flows{closed: true}
	defer func() { d.exits = nil }()
	h.write(d.options.ConfigPath, d.config.Control, "  mode: off")
	h.in(func() error {
		if err := d.Reload(); err == nil || !strings.Contains(err.Error(), "new connections are not told apart by their cgroups") {
			t.Errorf("reload: %v, want that the flows are closed", err)
		}
		return nil
	})
	h.uses("mode off", c, systemDefault, systemDefault)
}

// Which exits are cheap is another question after their costs have changed; that several are quicker than one is not.
func TestCostsChange(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 50})
	prefix := netip.MustParsePrefix("2001:db8:c::/48")
	x.worth.Join(1, false)
	known := func() (out []egress.Strategy) {
		for _, k := range x.worth.Known() {
			out = append(out, k.Strategy)
		}
		return out
	}
	for _, s := range []egress.Strategy{egress.Cheap, egress.Throughput} {
		x.worth.Transfer(1, prefix, s, 1<<20, 1e6, time.Now())
	}
	next := x.config
	next.Exits = slices.Clone(next.Exits)
	if x.become(&next); len(known()) != 2 {
		t.Errorf("after a reload that changes nothing strategies %v are known", known())
	}
	next.Exits[1].Cost++
	if x.become(&next); !slices.Equal(known(), []egress.Strategy{egress.Throughput}) {
		t.Errorf("after a cost has changed strategies %v are known", known())
	}
}
