package route

import (
	"net/netip"
	"os"
	"slices"
	"testing"
)

// Where the kernel names nothing but the objects of next hops, plait knows its routes all the same, and the ways to next hops.
func TestReconcileIncompatible(t *testing.T) {
	n := newNetwork(t)
	n.in(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0) })
	n.ip("-n " + n.server + " nexthop add id 1 via 2001:db8:1:1::1 dev s1")
	n.ip("-n " + n.server + " -6 route add fc00:92::/64 nhid 1")
	all := append(some(), entry(0, "2001:db8:d000::/48", netip.MustParseAddr("fc00:92::1")))
	all[len(all)-1].SID, all[len(all)-1].NextHop, all[len(all)-1].Standby = netip.Addr{}, netip.MustParseAddr("fc00:92::1"), false
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values(all)))
	journal = nil
	n.must(k.Reconcile(slices.Values(all)))
	if len(journal) > 0 {
		t.Errorf("a second time it did %q", journal)
	}
}
