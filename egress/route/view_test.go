package route

import (
	"net/netip"
	"os"
	"slices"
	"testing"
)

// The way of one packet has a gateway and an interface also where the route has several, or where the kernel names nothing but the objects they are.
func TestFindBehindSeveral(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n " + n.server + " nexthop add id 1 via 2001:db8:1:1::1 dev s1")
	n.ip("-n " + n.server + " nexthop add id 2 via 2001:db8:1:2::1 dev s2")
	n.ip("-n " + n.server + " nexthop add id 3 group 1/2")
	n.ip("-n " + n.server + " nexthop add id 4 via 10.1.0.1 dev s1")
	for to, route := range map[string]string{
		"fc00:91::": "-6 route add fc00:91::/64 nexthop via 2001:db8:1:1::1 nexthop via 2001:db8:1:2::1",
		"192.0.2.1": "-4 route add 192.0.2.0/25 nexthop via 10.1.0.1 nexthop via 10.2.0.1",
		"fc00:92::": "-6 route add fc00:92::/64 nhid 1",
		"fc00:93::": "-6 route add fc00:93::/64 nhid 3",
		"192.0.2.2": "-4 route add 192.0.2.2/32 nhid 4",
	} {
		n.ip("-n " + n.server + " " + route)
		for _, compatible := range []string{"1", "0"} {
			n.in(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte(compatible), 0) })
			n.in(n.server, func() error {
				v, err := OpenView()
				if err != nil {
					return err
				}
				defer v.Close()
				w, err := v.Find(netip.Addr{}, netip.MustParseAddr(to))
				if err != nil || !w.Gateway.IsValid() || w.Interface != "s1" && w.Interface != "s2" || w.Table != 254 || w.Prefix.IsSingleIP() != (to == "192.0.2.2") {
					t.Errorf("%s, compatible %s: %v, %v", route, compatible, w, err)
				}
				return nil
			})
		}
	}
}

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

// What is only known by its place, as a route that goes, is not said to lead to an interface.
func TestRouteInWords(t *testing.T) {
	at := placeOf(101, netip.MustParsePrefix("2001:db8:c::/48"), Metric)
	for want, r := range map[string]kernelRoute{
		"route 2001:db8:c::/48 encap seg6 mode encap segs fc00:1:0:6:: table 101 metric 4112":                        {place: at, sid: sids6[0]},
		"route 2001:db8:c::/48 nhid 1879048192 encap seg6 mode encap segs fc00:1:0:6:: link 2 table 101 metric 4112": {place: at, sid: sids6[0], nexthop: firstNexthop, link: 2},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
