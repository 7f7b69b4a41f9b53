package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/egress"
)

// A network tells servers its own prefix, in which its border routers are, too. That best path is no way to itself: next hops are behind what else the host has, whether
// plait's route is there already or not, and follow it.
func TestNextHopInBestPath(t *testing.T) {
	for _, c := range []struct{ family, own, first, second, client, theirs string }{
		{"-6", "2001:db8:9::/48", "2001:db8:9::11", "2001:db8:9::12", "2001:db8:c000::/48", "2001:db8:1:%d::1"},
		{"-4", "192.0.2.0/24", "192.0.2.11", "192.0.2.12", "198.51.100.0/24", "10.%d.0.1"},
	} {
		t.Run(c.family, func(t *testing.T) {
			n := newNetwork(t)
			theirs := func(i int) string { return fmt.Sprintf(c.theirs, i) }
			route := func(what string) { n.Helper(); n.ip("-n " + n.server + " " + c.family + " route " + what) }
			var journal []string
			k := n.kernel(&journal)
			best := func(prefix, hop string) egress.Entry {
				return egress.Entry{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop)}
			}
			all := []egress.Entry{best(c.own, c.first), best(c.client, c.first)}
			installed := func(what, via string) {
				t.Helper()
				n.must(k.Reconcile(slices.Values(all)))
				got := n.lines(c.family + " route show proto 112 table main")
				if len(got) != len(all) || slices.ContainsFunc(got, func(s string) bool { return !strings.Contains(s, " via "+via+" ") }) {
					t.Errorf("%s: %q, want all via %s", what, got, via)
				}
			}
			route("add default via " + theirs(1))
			installed("at first", theirs(1))
			journal = nil
			installed("again", theirs(1))
			if len(journal) > 0 {
				t.Errorf("again it did %q", journal)
			}
			another := best(c.client, c.second)
			n.must(k.Apply([]egress.Change{{Old: &all[1], New: &another}}))
			all[1] = another
			installed("another border router", theirs(1))
			route("replace default via " + theirs(2))
			installed("another gateway", theirs(2))
			route("replace default nexthop via " + theirs(2) + " nexthop via " + theirs(1))
			installed("two of them", theirs(2))
			route("add unreachable " + c.first)
			route("add " + c.second + " via " + theirs(1))
			if err := k.Reconcile(slices.Values(all)); err == nil || !strings.Contains(err.Error(), "find the way to next hop "+c.first) {
				t.Errorf("the next hop is unreachable: %v", err)
			}
			route("del unreachable " + c.first)
			route("del default")
			if err := k.Reconcile(slices.Values(all[:1])); err == nil {
				t.Error("nothing leads to the next hop, and no error says so")
			}
		})
	}
}
