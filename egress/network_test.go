package egress

import (
	"maps"
	"math"
	"net/netip"
	"testing"
	"time"
)

// Rates are by network and exit, the busiest come first, and what is long over is forgotten.
func TestNetworks(t *testing.T) {
	n, near, far := NewNetworks(), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")
	networkOf := func(client netip.Addr) netip.Prefix {
		if near.Contains(client) {
			return near
		}
		return far
	}
	for range 100 { // each second
		n.Look(maps.Values(map[int]FlowCount{
			1: {Exit: "a", Client: near.Addr(), AckedBytes: 1e6, SentSegments: 1000, Resent: 10, SRTTUs: 40_000},
			2: {Exit: "a", Client: near.Addr().Next(), AckedBytes: 1e6, SentSegments: 1000, SRTTUs: 20_000},
			3: {Exit: "b", Client: near.Addr(), AckedBytes: 3e6, SentSegments: 3000, SRTTUs: 10_000},
			4: {Exit: "b", Client: far.Addr(), AckedBytes: 1e6, SentSegments: 1000, SRTTUs: 10_000},
		}), networkOf, time.Second)
	}
	want := []NetworkTraffic{{near, "b", 1, 24e6, 0, 10}, {near, "a", 2, 16e6, 0.5, 30}, {far, "b", 1, 8e6, 0, 10}}
	got := n.Busiest(10)
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, w := range want {
		g := got[i]
		if g.Prefix != w.Prefix || g.Exit != w.Exit || g.Flows != w.Flows || math.Abs(g.GoodputBps/w.GoodputBps-1) > 1e-3 ||
			math.Abs(g.LossPercent-w.LossPercent) > 1e-3 || math.Abs(g.RTTMs/w.RTTMs-1) > 1e-3 {
			t.Errorf("got %+v, want %+v", g, w)
		}
	}
	if got := n.Busiest(2); len(got) != 2 {
		t.Errorf("%d, want the 2 busiest", len(got))
	}
	for range 10 * 60 {
		n.Look(maps.Values(map[int]FlowCount{}), networkOf, time.Second)
	}
	if len(n.by) != 0 {
		t.Errorf("%d networks after ten silent minutes, want none", len(n.by))
	}
}

// A client's network is the longest prefix an exit announces: what only the default table has is none, and that of Reachable comes first.
func TestPlanNetwork(t *testing.T) {
	longer := vpn("b", nil)
	longer.Prefix = netip.MustParsePrefix("2001:db8:c:1::/64")
	only := unicast("a")
	only.Prefix = netip.MustParsePrefix("2001:db8:c:1:2::/80")
	p := newPlan(t, three[:2], vpn("a", nil), longer, only)
	for client, want := range map[string]netip.Prefix{"2001:db8:c::7": near, "2001:db8:c:1::7": longer.Prefix, "2001:db8:c:1:2::7": longer.Prefix, "2001:db8:d::7": {}, "192.0.2.1": {}} {
		a := netip.MustParseAddr(client)
		got := p.Network(a)
		if got != want {
			t.Errorf("%s: %v, want %v", client, got, want)
		}
		if ways := p.Reachable(a); len(ways) > 0 && ways[0].Prefix != got {
			t.Errorf("%s: %v, but the best way has %v", client, got, ways[0].Prefix)
		}
	}
}
