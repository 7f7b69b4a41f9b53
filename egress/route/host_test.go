package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// The main thread stays with the main goroutine: netns.Do on it would leave it, and with it this process, in a test's namespace.
func init() { runtime.LockOSThread() }

// The network of these tests. Both border routers decapsulate and know only one way on, to the client, which counts what comes through which of them.
//
//	          s1 --- as1 --- c1
//	server <                     > client, who has 2001:db8:c000::/34 and 198.51.0.0/16
//	          s2 --- as2 --- c2
//
// The interface of the configuration is s1: packets for as2 leave by s2 all the same.
var exits = []egress.Exit{
	{Name: "a", RouteTarget: "65000:11", Locators: []netip.Prefix{netip.MustParsePrefix("fc00:1::/48")}, Table: 101,
		Addresses: []netip.Addr{netip.MustParseAddr("2001:db8:1::a"), netip.MustParseAddr("203.0.113.1")}},
	{Name: "b", RouteTarget: "65000:21", Locators: []netip.Prefix{netip.MustParsePrefix("fc00:2::/48")}, Table: 102,
		Addresses: []netip.Addr{netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("203.0.113.2")}},
}

var (
	tunnelSource = netip.MustParseAddr("2001:db8:1:1::10")
	hops6        = []netip.Addr{netip.MustParseAddr("2001:db8:1:1::1"), netip.MustParseAddr("2001:db8:1:2::1")}
	hops4        = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")}
	sids6        = []netip.Addr{netip.MustParseAddr("fc00:1:0:6::"), netip.MustParseAddr("fc00:2:0:6::")}
	sids4        = []netip.Addr{netip.MustParseAddr("fc00:1:0:4::"), netip.MustParseAddr("fc00:2:0:4::")}
)

// network is the namespaces of one test.
type network struct {
	testing.TB
	server, client string
	asbr           [2]string
}

func newNetwork(tb testing.TB) *network {
	tb.Helper()
	rung.Netns(tb)
	name := fmt.Sprintf("plait-route-%d", os.Getpid())
	n := &network{tb, name + "-s", name + "-c", [2]string{name + "-1", name + "-2"}}
	for _, ns := range []string{n.server, n.client, n.asbr[0], n.asbr[1]} {
		n.ip("netns add " + ns)
		tb.Cleanup(func() { n.ip("netns del " + ns) })
		n.in(ns, func() error {
			for key, value := range map[string]string{"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/accept_ra": "0",
				"ipv6/conf/all/seg6_enabled": "1", "ipv6/conf/default/seg6_enabled": "1", "ipv6/conf/all/forwarding": "1", "ipv4/ip_forward": "1",
				"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"} {
				if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
					return err
				}
			}
			return nil
		})
		n.ip("-n " + ns + " link set lo up")
	}
	for i, as := range n.asbr {
		i++
		n.ip(fmt.Sprintf("-n %s link add s%d type veth peer name u0 netns %s", n.server, i, as))
		n.ip(fmt.Sprintf("-n %s link add c%d type veth peer name d0 netns %s", n.client, i, as))
		n.address(n.server, fmt.Sprint("s", i), fmt.Sprintf("2001:db8:1:%d::10/64 10.%d.0.10/24", i, i))
		n.address(as, "u0", fmt.Sprintf("2001:db8:1:%d::1/64 10.%d.0.1/24", i, i))
		n.address(as, "d0", fmt.Sprintf("2001:db8:2:%d::1/64 10.1%d.0.1/24", i, i))
		n.address(n.client, fmt.Sprint("c", i), fmt.Sprintf("2001:db8:2:%d::2/64 10.1%d.0.2/24", i, i))
		n.ip(fmt.Sprintf("-n %s -6 route add fc00:%d::/48 via 2001:db8:1:%d::1", n.server, i, i))
		n.ip(fmt.Sprintf("-n %s -6 route add fc00:%d:0:6::/128 encap seg6local action End.DT6 table 10 dev u0", as, i))
		n.ip(fmt.Sprintf("-n %s -6 route add fc00:%d:0:4::/128 encap seg6local action End.DX4 nh4 10.1%d.0.2 dev u0", as, i, i))
		for _, table := range []string{"10", "main"} { // for packets that come encapsulated, and for others
			n.ip(fmt.Sprintf("-n %s -6 route add default via 2001:db8:2:%d::2 table %s", as, i, table))
		}
		n.ip(fmt.Sprintf("-n %s route add default via 10.1%d.0.2", as, i))
	}
	for i, as := range n.asbr {
		n.settled(n.server, fmt.Sprintf("2001:db8:1:%d::10", i+1))
		n.settled(as, fmt.Sprintf("2001:db8:2:%d::1", i+1))
		n.settled(n.client, fmt.Sprintf("2001:db8:2:%d::2", i+1))
	}
	n.ip("-n " + n.client + " -6 route add local 2001:db8:c000::/34 dev lo")
	n.ip("-n " + n.client + " route add local 198.51.0.0/16 dev lo")
	return n
}

func (n *network) address(ns, link, addresses string) {
	n.Helper()
	n.ip(fmt.Sprintf("-n %s link set %s up", ns, link))
	for _, a := range strings.Fields(addresses) {
		n.ip(fmt.Sprintf("-n %s addr add %s dev %s", ns, a, link))
	}
}

// settled waits until the kernel uses an address, which it begins to do in its own time.
func (n *network) settled(ns, address string) {
	n.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if strings.HasPrefix(n.ip("-n "+ns+" -6 route show table local "+address), "local") {
			return
		}
		if time.Now().After(deadline) {
			n.Fatalf("%s does not use %s", ns, address)
		}
	}
}

func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *network) ip(arguments string) string {
	n.Helper()
	out, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput()
	if err != nil {
		n.Fatalf("ip %s: %v: %s", arguments, err, out)
	}
	return string(out)
}

func (n *network) in(ns string, f func() error) { n.Helper(); n.must(netns.Do(ns, f)) }

// link is how the journal names a device of the server.
func (n *network) link(device string) (name string) {
	n.Helper()
	n.in(n.server, func() error {
		d, err := net.InterfaceByName(device)
		if err == nil {
			name = fmt.Sprintf("link %d", d.Index)
		}
		return err
	})
	return name
}

// lines are what ip lists in the server's namespace, sorted.
func (n *network) lines(arguments string) []string {
	n.Helper()
	out := strings.Split(strings.TrimSpace(n.ip("-n "+n.server+" "+arguments)), "\n")
	for i := range out {
		out[i] = strings.Join(strings.Fields(out[i]), " ")
	}
	slices.Sort(out)
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// everything there is in the server's tables, rules and addresses, and the tunnel source. The kernel adds what the table "local" has in its own time.
func (n *network) everything() []string {
	n.Helper()
	out := slices.Concat(n.lines("-6 route show table all"), n.lines("-4 route show table all"), n.lines("-6 rule"), n.lines("-4 rule"), n.lines("-o addr"), n.lines("nexthop"))
	out = slices.DeleteFunc(out, func(s string) bool { return strings.Contains(s, " table local ") })
	tunsrc, err := exec.Command("ip", "netns", "exec", n.server, "ip", "sr", "tunsrc", "show").CombinedOutput()
	n.must(err)
	return append(out, string(tunsrc))
}

// same compares two lists of lines.
func (n *network) same(what string, got, want []string) {
	n.Helper()
	if slices.Equal(got, want) {
		return
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			n.Errorf("%s: too much: %s", what, g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			n.Errorf("%s: missing: %s", what, w)
		}
	}
}

// kernel opens the server's kernel. Its steps are added to journal.
func (n *network) kernel(journal *[]string) *Kernel {
	n.Helper()
	c := Config{Exits: exits, Interface: "s1", TunnelSource: tunnelSource, Memory: filepath.Join(n.TempDir(), "tunsrc")}
	return n.open(c, journal)
}

func (n *network) open(c Config, journal *[]string) (k *Kernel) {
	n.Helper()
	if journal != nil {
		c.Journal = func(s Step) { *journal = append(*journal, s.String()) }
	}
	n.in(n.server, func() (err error) { k, err = Open(c); return err })
	n.Cleanup(k.Close)
	return k
}

func entry(table uint32, prefix string, to netip.Addr) egress.Entry {
	e := egress.Entry{Table: table, Prefix: netip.MustParsePrefix(prefix), SID: to}
	if table == 0 && (slices.Contains(hops6, to) || slices.Contains(hops4, to)) {
		e.SID, e.NextHop = netip.Addr{}, to
	} else if table == 0 {
		e.Standby = true
	}
	return e
}

// traffic sends packets with a number each from the server, and keeps through which border router each came to the client.
type traffic struct {
	*network
	sync.Mutex
	from map[netip.Addr]*net.UDPConn
	next uint64
	came map[uint64]int
}

const port = 9000

func (n *network) traffic(from ...netip.Addr) *traffic {
	n.Helper()
	t := &traffic{network: n, from: map[netip.Addr]*net.UDPConn{}, came: map[uint64]int{}}
	for i := range n.asbr {
		n.in(n.client, func() error {
			c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) {
					n.must(errors.Join(unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, fmt.Sprint("c", i+1)),
						unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)))
				})
			}}
			socket, err := c.ListenPacket(n.Context(), "udp", fmt.Sprint("[::]:", port))
			if err == nil {
				n.Cleanup(func() { socket.Close() })
				go t.receive(socket, i)
			}
			return err
		})
	}
	for _, a := range from {
		n.in(n.server, func() (err error) {
			t.from[a], err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
			return err
		})
		n.Cleanup(func() { t.from[a].Close() })
	}
	return t
}

func (t *traffic) receive(socket net.PacketConn, exit int) {
	b := make([]byte, 64)
	for {
		size, _, err := socket.ReadFrom(b)
		if err != nil {
			return
		}
		if size == 8 {
			t.Lock()
			t.came[binary.BigEndian.Uint64(b)] = exit
			t.Unlock()
		}
	}
}

// send sends a packet and returns its number; 0 if the kernel has no way for it.
func (t *traffic) send(from, to netip.Addr) uint64 {
	t.Helper()
	t.Lock()
	t.next++
	number := t.next
	t.Unlock()
	_, err := t.from[from].WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, number), netip.AddrPortFrom(to, port))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return 0
	case err != nil:
		t.Errorf("send from %v to %v: %v", from, to, err)
		return 0
	}
	return number
}

// arrived waits until the packets are there, and returns all that came, once nothing more does.
func (t *traffic) arrived(packets int) map[uint64]int {
	t.Helper()
	count := func() int { t.Lock(); defer t.Unlock(); return len(t.came) }
	for deadline := time.Now().Add(20 * time.Second); count() < packets && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // one too many would be among the others, or right behind
	t.Lock()
	defer t.Unlock()
	return maps.Clone(t.came)
}
