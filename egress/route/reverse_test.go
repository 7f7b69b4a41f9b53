package route

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A reverse path filter, loose or strict, drops IPv4 packets to an exit's address whose source the exit does not announce, such as what routers say of packets that are too big: the way back is looked up by the exit's rules.
// Without a filter they come in.
func TestReversePathFilter(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	to := exits[0].Addresses[1]
	announced, router := netip.MustParseAddr("198.51.100.9"), hops4[0]
	n.ip("-n " + n.asbr[0] + " addr add " + announced.String() + "/32 dev lo")
	n.ip("-n " + n.asbr[0] + " route add " + to.String() + " via 10.1.0.10 dev u0")
	var server *net.UDPConn
	n.in(n.server, func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
		return err
	})
	defer server.Close()
	from := map[netip.Addr]*net.UDPConn{}
	for _, a := range []netip.Addr{announced, router} {
		n.in(n.asbr[0], func() (err error) {
			from[a], err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
			return err
		})
		defer from[a].Close()
	}
	// until sends from an address until the server has got one of its packets, or has counted one as filtered.
	until := func(filter string, source netip.Addr) (arrived bool) {
		n.in(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/s1/rp_filter", []byte(filter), 0) })
		before, b := n.filtered(), make([]byte, 64)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			_, err := from[source].Write([]byte("x"))
			n.must(err)
			n.must(server.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
			if _, who, err := server.ReadFromUDPAddrPort(b); err == nil && who.Addr() == source {
				return true
			}
			if n.filtered() != before {
				return false
			}
		}
		t.Fatalf("rp_filter %s: a packet from %v is neither there nor filtered", filter, source)
		return false
	}
	for _, filter := range []string{"2", "1", "0"} {
		if !until(filter, announced) {
			t.Errorf("rp_filter %s: a packet from %v, which the exit announces, is dropped", filter, announced)
		}
		if arrived := until(filter, router); arrived != (filter == "0") {
			t.Errorf("rp_filter %s: a packet from %v, which the exit does not announce: arrived %v", filter, router, arrived)
		}
	}
}

// filtered is how many packets the server's reverse path filter has dropped: the counter as text.
func (n *network) filtered() (count string) {
	n.Helper()
	n.in(n.server, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat") // of this thread, which is in the namespace
		var names []string
		for line := range strings.Lines(string(text)) {
			values := strings.Fields(line)
			if i := slices.Index(names, "IPReversePathFilter"); i >= 0 && values[0] == "TcpExt:" {
				count = values[i]
			}
			names = values
		}
		return err
	})
	return count
}
