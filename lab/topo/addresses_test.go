package topo

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	topology := read(t, epeFile, "")
	for _, c := range []struct {
		node, link string
		family     int
		want       string
	}{
		{"server", "", 6, "2001:db8:1::1"},
		{"server", "csp", 4, "10.1.0.1"},
		{"client", "", 6, "2001:db8:c::2"},
		{"isp", "tb-isp", 6, "2001:db8:5::2"},
		{"isp", "", 4, "10.4.0.2"},
	} {
		if got, ok := topology.Address(c.node, c.link, c.family); !ok || got.String() != c.want {
			t.Errorf("address of %s on %q, IPv%d: got %s %v, want %s", c.node, c.link, c.family, got, ok, c.want)
		}
	}
	for _, c := range [][2]string{{"nobody", ""}, {"server", "access"}} {
		if got, ok := topology.Address(c[0], c[1], 6); ok {
			t.Errorf("address of %s on %q: got %s, want none", c[0], c[1], got)
		}
	}
	if got := topology.MAC("isp", "tb-isp").String(); got != "02:00:00:05:00:02" {
		t.Errorf("MAC of the second end of the fifth link: got %s", got)
	}
}

func TestNewErrors(t *testing.T) {
	epe, err := os.ReadFile(epeFile)
	if err != nil {
		t.Fatal(err)
	}
	change := func(was, is string) string {
		s := parameters.Replace(string(epe))
		if !strings.Contains(s, was) {
			t.Fatalf("%s has no %q", epeFile, was)
		}
		return strings.Replace(s, was, is, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"no room", "links: {l: {ends: [a, b], prefix4: 10.9.0.0/32}}", "links.l.prefix4: 10.9.0.0/32 has no room for 2 ends"},
		{"broadcasts", "links: {l: {ends: [a, b, c], prefix4: 10.9.0.0/30}}", "links.l.prefix4: 10.9.0.0/30 has no room for 3 ends"},
		{"beyond all addresses", "links: {l: {ends: [a, b], prefix4: 255.255.255.254/31}}", "links.l.prefix4: 255.255.255.254/31 has no room for 2 ends"},
		{"no room for IPv6", "links: {l: {ends: [a, b], prefix6: 2001:db8::/127}}", "links.l.prefix6: 2001:db8::/127 has no room for 2 ends"},
		{"LAN with rate", "links: {l: {ends: [a, b, c], rate_mbps: 5}}", "links.l: a LAN"},
		{"one-sided peer", change("isp:\n    asn: 64500\n    announce: [access]\n    peers: {ta: {}, tb: {}}", "isp:\n    asn: 64500\n    peers: {tb: {}}"), "routers.ta.peers.isp: router isp does not list ta"},
		{"unknown peer", change("peers: {rr: {}}", "peers: {rr: {}, xx: {}}"), "there is no router xx"},
		{"far peer", change("peers: {server: {}, as1: {}, as2: {}}", "peers: {server: {}, as1: {}, as2: {}, isp: {}}"), "routers.rr.peers.isp"},
		{"announce", change("announce: [access]", "announce: [acess]"), `routers.isp.announce: "acess" is neither`},
		{"no locator", change(`locator: "2001:db8:f1::/48"`, ""), "router as1 needs an SRv6 locator"},
		{"same exit", change("exit: b", "exit: a"), "a is also the name of another exit"},
		{"link like VRF", change("links:", "links:\n  exit-b: {ends: [as2, other]}"), "b has a VRF exit-b, which is the name of a link"},
		{"unknown exit", change("exits: [a, b]", "exits: [a, c]"), "no router has a peer with exit c"},
		{"inner exit", change("peers: {server: {}, as1: {}, as2: {}}", "peers: {server: {exit: x}, as1: {}, as2: {}}"), "server is in the same AS"},
		{"event LAN", "links: {l: {ends: [a, b, c]}}\ntimeline: [{at_s: 1, link: l, blackhole: both}]", "timeline.0.blackhole: l is a LAN"},
		{"event router", "links: {l: {ends: [a, b]}}\ntimeline: [{at_s: 1, router: a, withdraw: l}]", "there is no router a"},
		{"event peer", change("params:", "timeline: [{at_s: 1, router: isp, peer: rr, withdraw: access}]\nparams:"), "timeline.0.peer: rr is no peer of router isp"},
		{"event address", "links: {l: {ends: [a, b]}}\ntimeline: [{at_s: 1, node: a, on: l, address: 10.2.0.1/24}]", "is not in the link's prefix 10.1.0.0/24"},
		{"event order", change("params:", "timeline: [{at_s: 1, jitter_ms: 500, router: isp, withdraw: access}, {at_s: 1.5, router: isp, announce: access}]\nparams:"), "timeline.0.jitter_ms"},
	} {
		if _, err := New(parse(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// TestTablesOfManyLinks: a node's tables of its own are none of the kernel's (default, main and local).
func TestTablesOfManyLinks(t *testing.T) {
	text := "nodes: {hub: {per_link_routes: true}}\nlinks:\n"
	for i := range 255 {
		text += fmt.Sprintf("  l%d: {ends: [hub, n%d]}\n", i, i)
	}
	topology, err := New(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	plan := render(topology)
	for _, table := range []string{"253", "254", "255"} {
		if at := strings.Index(plan, "table "+table+"\n"); at >= 0 {
			t.Errorf("the plan writes to table %s: %s", table, plan[strings.LastIndex(plan[:at], "\n")+1:at])
		}
	}
}

// TestSettingTakenBack: a sysctl with an empty value is none, as every key.
func TestSettingTakenBack(t *testing.T) {
	topology, err := New(parse(t, "sysctl: {net.ipv4.tcp_sack: null, net.ipv4.tcp_ecn: 1}\nlinks: {l: {ends: [a, b]}}"))
	if err != nil {
		t.Fatal(err)
	}
	if plan := render(topology); strings.Contains(plan, "tcp_sack") || !strings.Contains(plan, "net.ipv4.tcp_ecn=1\n") {
		t.Errorf("the plan writes an empty setting, or not the other one:\n%s", plan)
	}
}
