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
