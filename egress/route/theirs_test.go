package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// A routing protocol moves the way to a next hop, takes it away and brings it back, and no event of plait's tells. It is found by asking; but not what is behind plait's own route, for that would be to
// read all routes.
func TestStrayed(t *testing.T) {
	for _, c := range []struct{ family, own, hop, client, theirs string }{
		{"-6", "2001:db8:9::/48", "2001:db8:9::11", "2001:db8:c000::/48", "2001:db8:1:%d::1"},
		{"-4", "192.0.2.0/24", "192.0.2.11", "198.51.100.0/24", "10.%d.0.1"},
	} {
		t.Run(c.family, func(t *testing.T) {
			n := newNetwork(t)
			k := n.kernel(nil)
			theirs := func(i int) string { return " via " + fmt.Sprintf(c.theirs, i) }
			best := func(prefix, hop string) egress.Entry {
				return egress.Entry{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop)}
			}
			all := []egress.Entry{best(c.client, c.hop)}
			compare := func(what, via string) {
				t.Helper()
				_ = k.Reconcile(slices.Values(all)) // it fails where nothing leads to the next hop
				got := strings.Join(n.lines(c.family+" route show proto 112 table main "+c.client), "")
				if (via == "") != (got == "") || !strings.Contains(got, via) {
					t.Errorf("after %q: the best path is %q, want%s", what, got, via)
				}
				if k.Strayed() {
					t.Errorf("after %q, and a comparison, it is to be compared again", what)
				}
			}
			move := func(what string, strayed bool, via string) {
				t.Helper()
				n.ip("-n " + n.server + " " + c.family + " route " + what)
				if k.Strayed() != strayed {
					t.Errorf("after %q: strayed %v, want %v", what, !strayed, strayed)
				}
				compare(what, via)
			}
			if k.Strayed() {
				t.Error("something strayed before there was anything")
			}
			compare("nothing", "")
			move("add "+c.hop+theirs(1), true, theirs(1))
			move("replace "+c.hop+theirs(2), true, theirs(2))
			move("add default"+theirs(1), false, theirs(2))
			move("del "+c.hop, true, theirs(1))
			move("del default", true, "")
			move("add default"+theirs(2), true, theirs(2))
			all = append(all, best(c.own, fmt.Sprintf(c.theirs, 2)))
			compare("a best path with the next hop in it", theirs(2))
			move("add "+c.hop+theirs(1), true, theirs(1))
			move("del "+c.hop, true, theirs(2))
			move("replace default"+theirs(1), false, theirs(1))
			move("del default", false, "")
			move("add "+c.hop+theirs(1), true, theirs(1))
			n.ip("-n " + n.server + " link set s1 down")
			compare("s1 down", "") // which cannot be compared, and would be once a second
		})
	}
}

// That the kernel has no memory for an answer is none.
func TestPasses(t *testing.T) {
	for err, want := range map[error]bool{nil: false, unix.ENETUNREACH: false, unix.EINVAL: false, unix.ENOBUFS: true, unix.ENOMEM: true} {
		if err != nil {
			err = fmt.Errorf("find the way: %w; a route is missing", err)
		}
		if got := passes(err); got != want {
			t.Errorf("%v passes: %v, want %v", err, got, want)
		}
	}
}
