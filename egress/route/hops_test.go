package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/egress"
)

// A next hop that nothing leads to is looked for and told of once, however many routes go there, and looked for again at the next time.
func TestNextHopOfMany(t *testing.T) {
	const routes = 20_000
	n := newNetwork(t)
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values(some())))
	lost := netip.MustParseAddr("2001:db8:99::1")
	entries, changes := some(), []egress.Change{}
	for i := range routes {
		e := egress.Entry{Prefix: netip.MustParsePrefix(fmt.Sprintf("2001:db8:d%03x:%x::/64", i>>12, i&0xfff)), NextHop: lost}
		entries, changes = append(entries, e), append(changes, egress.Change{New: &e})
	}
	for what, do := range map[string]func() error{
		"apply":     func() error { return k.Apply(changes) },
		"reconcile": func() error { return k.Reconcile(slices.Values(entries)) },
	} {
		journal = nil
		err := do()
		if err == nil || !strings.Contains(err.Error(), "a route or a network to it is missing") {
			t.Errorf("%s: %v, want the next hop that nothing leads to", what, err)
		}
		if len(journal) != 1 || !strings.HasPrefix(journal[0], "add 20000 routes, the first 2001:db8:d000::/64: find the way to next hop 2001:db8:99::1") {
			t.Errorf("%s: %d lines in the journal, the first: %s", what, len(journal), journal[0])
		}
	}
	n.ip("-n " + n.server + " -6 route add 2001:db8:99::/64 via 2001:db8:1:1::1")
	n.must(k.Apply(changes[:1]))
	if got := n.lines("-6 route show root 2001:db8:d000::/64 proto 112"); len(got) != 1 {
		t.Errorf("with a way there: %q", got)
	}
}

// A next hop may have a route of its own among the best paths, as where border routers announce their addresses, or be on no network of the interface, as where a server has
// nothing but its own address and a way to its gateway. The kernel takes a route to neither, unless it is told that the next hop is on the link.
func TestNextHopOnLink(t *testing.T) {
	for _, c := range []struct{ name, prepare, hop, host, prefix string }{
		{"IPv6, announced", "", "2001:db8:1:1::1", "2001:db8:1:1::1/128", "2001:db8:d000::/48"},
		{"IPv4, announced", "", "10.1.0.1", "10.1.0.1/32", "192.0.2.0/24"},
		{"IPv6, no network", "-6 route add 2001:db8:77::/64 via 2001:db8:99::1 dev s1 onlink", "2001:db8:77::1", "2001:db8:d001::/48", "2001:db8:d000::/48"},
		{"IPv4, no network", "-4 route add 198.18.0.0/24 via 198.19.0.1 dev s1 onlink", "198.18.0.1", "192.0.3.0/24", "192.0.2.0/24"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t)
			if c.prepare != "" {
				n.ip("-n " + n.server + " " + c.prepare)
			}
			k := n.kernel(&[]string{})
			n.must(k.Reconcile(slices.Values(some())))
			hop := netip.MustParseAddr(c.hop)
			for _, p := range []string{c.host, c.prefix} {
				n.must(k.Apply([]egress.Change{{New: &egress.Entry{Prefix: netip.MustParsePrefix(p), NextHop: hop}}}))
			}
		})
	}
}
