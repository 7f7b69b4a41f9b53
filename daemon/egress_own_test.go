package daemon

import (
	"fmt"
	"net/netip"
	"testing"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// A connection that began on an exit's own address is left by that exit when it is withdrawn, as one that fails is, held out or not: from that moment on its packets are unreachable.
func TestOwnExitWithdrawn(t *testing.T) {
	const managed, heldOut = 500, 499 // 5 %
	for _, c := range []struct {
		strategy      egress.Strategy
		token         uint32
		before, after string
	}{
		{egress.Cheap, managed, "a backup; b backup; c same; c", "a backup; b; c avoid"}, // c is the cheapest
		{egress.Throughput, managed, "a; b; c same; c", "a; b; c avoid"},
		{egress.Throughput, heldOut, "", "a; b; c avoid"},
	} {
		x := choosing(t, Service{c.strategy, 5})
		peer := mptcp.Peer{Token: c.token, Client: chooser, Own: netip.AddrPortFrom(x.byExit["c"][false], 80)}
		roles := func() (out string) {
			for _, a := range x.reachable(peer) {
				for _, role := range []struct {
					is   bool
					name string
				}{{true, "; " + x.ownExit(a.Addr)}, {a.Same, " same"}, {a.Backup, " backup"}, {a.Avoid, " avoid"}} {
					if role.is {
						out += role.name
					}
				}
			}
			return out[min(2, len(out)):]
		}
		before := roles()
		x.plan.Apply([]egress.Update{{Key: egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Distinguisher: "c", Prefix: netip.MustParsePrefix("2001:db8:c::/48")}}})
		what := fmt.Sprintf("strategy %s, connection %d", c.strategy, c.token)
		if after := roles(); before != c.before || after != c.after {
			t.Errorf("%s: %q, then %q, want %q, then %q", what, before, after, c.before, c.after)
		}
		if why := x.why(peer, peer.Own.Addr()); why != "no route through it reaches the client" {
			t.Errorf("%s: %q", what, why)
		}
	}
}

// A best path by an exit of which the configuration says nothing costs as much as the dearest of those it knows: it is not for free.
func TestCheapElsewhere(t *testing.T) {
	x := choosing(t, Service{egress.Cheap, 0})
	key := egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Prefix: netip.MustParsePrefix("2001:db8:c::/48")}
	x.plan.Apply([]egress.Update{{Key: key, Route: &egress.Route{LocalPref: 300, RouterID: netip.MustParseAddr("10.0.0.9"), NextHop: netip.MustParseAddr("2001:db8:1::1")}}})
	for _, c := range []struct {
		costs []int // of a, b and c
		want  string
	}{
		{[]int{3, 2, 1}, "10- a- b- c+"},
		{[]int{2, 2, 2}, "10+ a+ b+ c+"},
		{[]int{0, 0, 0}, "10+ a+ b+ c+"},
	} {
		for i := range x.config.Exits {
			x.config.Exits[i].Cost = c.costs[i]
		}
		x.become(&x.config)
		if got := x.roles(500, 80); got != c.want {
			t.Errorf("costs %d: %q, want %q", c.costs, got, c.want)
		}
	}
}
