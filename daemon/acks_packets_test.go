package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

const testAckPort = 27528

func loadAcks(h *host, program string) *ebpf.Collection {
	h.Helper()
	spec, err := bpf.LoadAcks()
	h.must(err)
	spec.Programs = map[string]*ebpf.ProgramSpec{program: spec.Programs[program]} // the verifier takes seconds for the other
	h.must(spec.Variables[bpf.AcksVarPlaitAckPort].Set(uint16(testAckPort)))
	c, err := ebpf.NewCollection(spec)
	h.must(err)
	h.Cleanup(c.Close)
	h.must(c.Variables[bpf.AcksVarPlaitAckAny].Set(uint32(1)))
	return c
}

// tcpACK is an ACK with right checksums.
func tcpACK(from, to netip.AddrPort, ack, tsval uint32, options ...byte) []byte {
	order := binary.BigEndian
	o := append([]byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 9}, options...)
	order.PutUint32(o[4:], tsval)
	tcp := append(make([]byte, 20), o...)
	order.PutUint16(tcp, from.Port())
	order.PutUint16(tcp[2:], to.Port())
	order.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = byte(len(tcp)/4)<<4, flagACK
	order.PutUint16(tcp[16:], ^sum(pseudo(from.Addr(), to.Addr(), tcp), tcp))
	return network(from.Addr(), to.Addr(), protocolTCP, tcp)
}

func network(from, to netip.Addr, protocol byte, data []byte) []byte {
	if from.Is6() {
		return ipv6(from, to, protocol, data)
	}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(data)))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(nil, ip))
	return append(ip, data...)
}

func pseudo(from, to netip.Addr, tcp []byte) []byte {
	p := append(from.AsSlice(), to.AsSlice()...)
	return append(p, 0, protocolTCP, byte(len(tcp)>>8), byte(len(tcp)))
}

// sum is that of RFC 1071, of two parts of even length.
func sum(a, b []byte) uint16 {
	var s uint32
	for _, part := range [][]byte{a, b} {
		for i := 0; i+1 < len(part); i += 2 {
			s += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	s = s&0xffff + s>>16
	return uint16(s + s>>16)
}

func tunnel(from, to netip.Addr, port uint16, id byte, token uint32, inner []byte) []byte {
	const senderID = 1
	order := binary.BigEndian
	udp := make([]byte, 16)
	order.PutUint16(udp, 40000)
	order.PutUint16(udp[2:], port)
	order.PutUint16(udp[4:], uint16(16+len(inner)))
	udp[8], udp[9], udp[10], udp[11] = 0x70, 0x41, id, senderID
	order.PutUint32(udp[12:], token)
	return network(from, to, protocolUDP, append(udp, inner...))
}

func onEthernet(packet []byte) []byte {
	ethernet := make([]byte, 14)
	ethernet[12], ethernet[13] = 0x08, 0x00
	if packet[0]>>4 == 6 {
		ethernet[12], ethernet[13] = 0x86, 0xdd
	}
	return append(ethernet, packet...)
}

// A copy becomes the ACK that its socket expects, whatever NAT is on the native way; nothing else comes out of a tunnel.
func TestACKCopyTaken(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	const next, drop = 0xffffffff, 2
	server4, server6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	quick4, quick6 := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:2::7")
	for _, f := range []struct {
		name           string
		client, nat, s netip.AddrPort
		from, to       netip.Addr
	}{
		{"IPv4", netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("198.51.100.7:5000"), netip.AddrPortFrom(server4, 443), quick4, server4},
		{"IPv4, NAT", netip.MustParseAddrPort("192.168.1.7:5000"), netip.MustParseAddrPort("198.51.100.9:61234"), netip.AddrPortFrom(server4, 443), quick4, server4},
		{"IPv6", netip.MustParseAddrPort("[2001:db8:1::7]:5000"), netip.MustParseAddrPort("[2001:db8:1::7]:5000"), netip.AddrPortFrom(server6, 443), quick6, server6},
		{"IPv6, NAT", netip.MustParseAddrPort("[fd00::7]:5000"), netip.MustParseAddrPort("[2001:db8:1::9]:61234"), netip.AddrPortFrom(server6, 443), quick6, server6},
		{"IPv4 in IPv6", netip.MustParseAddrPort("192.168.1.7:5000"), netip.MustParseAddrPort("198.51.100.9:61234"), netip.AddrPortFrom(server4, 443), quick6, server6},
		{"IPv6 in IPv4", netip.MustParseAddrPort("[2001:db8:1::7]:5000"), netip.MustParseAddrPort("[2001:db8:1::7]:5000"), netip.AddrPortFrom(server6, 443), quick4, server4},
	} {
		t.Run(f.name, func(t *testing.T) {
			key := packet{from: f.s, to: f.nat}.key()
			una, clock := h.established(t, f.nat, f.s)
			name := bpf.AckName{From: f.from.As16(), Token: 77, Id: 3, SenderId: 1}
			h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(name, key))
			h.must(c.Maps[bpf.AcksMapPlaitAckFlows].Put(key, &bpf.AckLead{}))
			run := func(data []byte) (verdict uint32, out []byte) {
				out = make([]byte, 400)
				const complete = 1 << 2 // BPF_F_TEST_SKB_CHECKSUM_COMPLETE: a device has summed up the packet, and the sum must be right afterwards
				o := &ebpf.RunOptions{Data: data, DataOut: out, Flags: complete}
				h.in(func() (err error) {
					verdict, err = c.Programs[bpf.AcksProgPlaitAckHeard].Run(o)
					if errors.Is(err, unix.EINVAL) { // a kernel of before that
						o.Flags = 0
						verdict, err = c.Programs[bpf.AcksProgPlaitAckHeard].Run(o)
					}
					return err
				})
				return verdict, o.DataOut
			}
			inner := tcpACK(f.client, f.s, una-2000, clock)
			verdict, out := run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, inner)))
			if want := onEthernet(tcpACK(f.nat, f.s, una-2000, clock)); verdict != next || !bytes.Equal(out[14:], want[14:]) {
				t.Errorf("%d\n%x, want\n%x", int32(verdict), out, want)
			}
			join := tcpACK(f.client, f.s, una-1999, clock+1, 30, 8, 0x10, 0, 0, 0, 0, 0)
			if verdict, _ := run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, join))); verdict != drop {
				t.Errorf("a copy of an ACK that joins: %d", int32(verdict))
			}
			for what, wrapped := range map[string][]byte{
				"in IPv6":                ipv6(quick6, quick6.Next(), protocol(f.nat.Addr()), tcpACK(f.nat, f.s, una-2000, clock)),
				"with a routing header":  ipv6(quick6, quick6.Next(), 43, append(append([]byte{protocol(f.nat.Addr())}, make([]byte, 7)...), tcpACK(f.nat, f.s, una-2000, clock)...)),
				"with an option of IPv4": withOption(tcpACK(netip.AddrPortFrom(quick4, 5), netip.AddrPortFrom(server4, 443), una-2000, clock)),
			} {
				if verdict, _ := run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, wrapped))); verdict != drop {
					t.Errorf("a copy of an ACK %s: %d", what, int32(verdict))
				}
			}
			for what, other := range map[string][]byte{
				"another token": tunnel(f.from, f.to, testAckPort, 3, 78, inner),
				"another id":    tunnel(f.from, f.to, testAckPort, 4, 77, inner),
				"another port":  tunnel(f.from, f.to, testAckPort+1, 3, 77, inner),
				"a stranger":    tunnel(f.from.Next(), f.to, testAckPort, 3, 77, inner),
			} {
				if verdict, out := run(onEthernet(other)); verdict != next || !bytes.Equal(out, onEthernet(other)) {
					t.Errorf("%s: %d, %x", what, int32(verdict), out)
				}
			}
			// The native twin: the time between is the lead. A copy that is older than what came natively, or the same, is late.
			time.Sleep(2 * time.Millisecond)
			run(onEthernet(tcpACK(f.nat, f.s, una-2000, clock)))
			var l bpf.AckLead
			h.must(c.Maps[bpf.AcksMapPlaitAckFlows].Lookup(key, &l))
			if l.Copies != 1 || l.Late != 0 || l.Leads != 1 || l.LeadUs < 2000 {
				t.Errorf("after the twin: %+v", l)
			}
			run(onEthernet(tcpACK(f.nat, f.s, una, clock+2)))
			run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, tcpACK(f.client, f.s, una-1000, clock+1))))
			h.must(c.Maps[bpf.AcksMapPlaitAckFlows].Lookup(key, &l))
			if l.Copies != 2 || l.Late != 1 || l.Leads != 2 {
				t.Errorf("after a late copy: %+v", l)
			}
			if verdict, _ := run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, tcpACK(f.client, f.s, una, clock+2)))); verdict != drop {
				t.Errorf("a late copy that says nothing: %d", int32(verdict))
			}
			// What is said at once has the timestamp of the ACK before it.
			priority := tcpACK(f.client, f.s, una, clock+2, 30, 4, 0x51, 3)
			if verdict, _ := run(onEthernet(tunnel(f.from, f.to, testAckPort, 3, 77, priority))); verdict != next {
				t.Errorf("a copy of an ACK that changes a priority: %d", int32(verdict))
			}
		})
	}
}

// ackPair is a connection over a slow link, at whose ends the programs are, and another link beside.
type ackPair struct {
	*host            // receives
	far              *host
	receiver, sender *ebpf.Collection
	there, here      bpf.FlowKey // as the receiver and as the sender has it
	conn, served     net.Conn
}

// newSlowPair is one whose slow link takes so long there and back, and loses what loses says on its way back; its quick link takes no time.
func newSlowPair(t *testing.T, there, back time.Duration, loses func([]byte) bool) *ackPair {
	t.Helper()
	h, far := newSlowLink(t, there, back, loses)
	return newAckPair(h, far, "44")
}

func newSlowLink(t *testing.T, there, back time.Duration, loses func([]byte) bool) (h, far *host) {
	t.Helper()
	h = newNamespace(t)
	far = h.second("-s")
	near, distant := h.device(h.ns, "slow", unix.IFF_TUN), h.device(far.ns, "slow", unix.IFF_TUN)
	go slowly(near, distant, there, nil)
	go slowly(distant, near, back, loses)
	h.ip(fmt.Sprintf("-n %s link add quick type veth peer name quick netns %s", h.ns, far.ns))
	return h, far
}

// newAckPair copies the ACKs of conn. families are those of the slow link and of the quick one.
func newAckPair(h, far *host, families string) *ackPair {
	h.Helper()
	a := &ackPair{host: h, far: far, receiver: loadAcks(h, bpf.AcksProgPlaitAckSent), sender: loadAcks(h, bpf.AcksProgPlaitAckHeard)}
	address := func(link, last int) netip.Addr {
		if families[link] == '6' {
			return netip.MustParseAddr(fmt.Sprintf("fd09:%d::%d", link, last))
		}
		return netip.MustParseAddr(fmt.Sprintf("10.9.%d.%d", link, last))
	}
	for i, name := range []string{"slow", "quick"} {
		for ns, last := range map[string]int{h.ns: 1, far.ns: 2} {
			h.ip(fmt.Sprintf("-n %s addr add 10.9.%d.%d/24 dev %s", ns, i, last, name))
			h.ip(fmt.Sprintf("-n %s addr add fd09:%d::%d/64 dev %s nodad", ns, i, last, name))
			h.ip(fmt.Sprintf("-n %s link set %s up", ns, name))
		}
	}
	h.eventually(10*time.Second, "the quick link carries packets", func() (up bool) { // the daemon has spoken with the other end over it before
		h.in(func() error {
			_, err := net.DialTimeout("tcp", netip.AddrPortFrom(address(1, 2), 9).String(), time.Second)
			up = errors.Is(err, unix.ECONNREFUSED)
			return nil
		})
		return up
	})
	programs := &ackPrograms{Collection: a.receiver, sent: map[int]link.Link{}}
	h.in(func() error {
		i, err := net.InterfaceByName("slow")
		if err != nil {
			return err
		}
		return programs.watchSent(map[int]bool{i.Index: true})
	})
	h.Cleanup(func() { h.must(programs.watchSent(nil)) })
	far.hook("slow", a.sender.Programs[bpf.AcksProgPlaitAckHeard], ebpf.AttachTCXIngress)
	far.hook("quick", a.sender.Programs[bpf.AcksProgPlaitAckHeard], ebpf.AttachTCXIngress)
	var slow, quick *net.Interface
	h.in(func() (err error) { slow, err = net.InterfaceByName("slow"); return err })
	h.in(func() (err error) { quick, err = net.InterfaceByName("quick"); return err })

	var listener net.Listener
	far.in(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(address(0, 2), 0).String())
		return err
	})
	h.Cleanup(func() { listener.Close() }) // as at a server; where the flow's socket is not to be found, it is
	h.in(func() (err error) { a.conn, err = net.Dial("tcp", listener.Addr().String()); return err })
	h.Cleanup(func() { a.conn.Close() })
	var err error
	a.served, err = listener.Accept()
	h.must(err)
	h.Cleanup(func() { a.served.Close() })
	key := func(c net.Conn) bpf.FlowKey {
		return packet{from: c.LocalAddr().(*net.TCPAddr).AddrPort(), to: c.RemoteAddr().(*net.TCPAddr).AddrPort()}.key()
	}
	a.there, a.here = key(a.conn), key(a.served)
	h.must(a.receiver.Maps[bpf.AcksMapPlaitAckRoutes].Put(a.there, &bpf.AckRoute{
		Source: address(1, 1).As16(), Destination: address(1, 2).As16(), NextHop: address(1, 2).As16(), Ifindex: uint32(quick.Index), Slow: uint32(slow.Index),
		Token: 5, SourcePort: 40000, DestinationPort: testAckPort, Id: 1, SenderId: 2,
	}))
	h.must(a.sender.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: address(1, 1).As16(), Token: 5, Id: 1, SenderId: 2}, a.here))
	h.must(a.sender.Maps[bpf.AcksMapPlaitAckFlows].Put(a.here, &bpf.AckLead{}))
	return a
}

// hook attaches a program to the packets of a device.
func (h *host) hook(name string, p *ebpf.Program, at ebpf.AttachType) {
	h.Helper()
	h.in(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: p, Attach: at})
		if err == nil {
			h.Cleanup(func() { l.Close() })
		}
		return err
	})
}

// counted says how many copies were sent, and what came of them.
func (a *ackPair) counted() (r bpf.AckRoute, l bpf.AckLead) {
	a.Helper()
	a.must(a.receiver.Maps[bpf.AcksMapPlaitAckRoutes].Lookup(a.there, &r))
	a.must(a.sender.Maps[bpf.AcksMapPlaitAckFlows].Lookup(a.here, &l))
	return r, l
}

// counter is one of the namespace, by the name that nstat has for it.
func (h *host) counter(name string) (n int) {
	h.Helper()
	out, err := exec.Command("ip", "netns", "exec", h.ns, "nstat", "-asz", name).Output()
	h.must(err)
	fields := strings.Fields(string(out))
	n, err = strconv.Atoi(fields[len(fields)-2])
	h.must(err)
	return n
}

// All pure ACKs of a flow, and nothing else, go twice, whether the links have Ethernet headers or not; the data that is acknowledged arrives whole.
func TestACKsCopied(t *testing.T) {
	for _, c := range []struct {
		name, families string
		bare           bool
	}{{"IPv4", "44", false}, {"IPv6", "66", false}, {"IPv4, links without Ethernet", "44", true}, {"IPv6, links without Ethernet", "66", true}, {"IPv4 over IPv6", "46", true}} {
		t.Run(c.name, func(t *testing.T) {
			h := newNamespace(t)
			far := h.second("-s")
			for _, name := range []string{"slow", "quick"} {
				if c.bare {
					a, b := h.device(h.ns, name, unix.IFF_TUN), h.device(far.ns, name, unix.IFF_TUN)
					go slowly(a, b, 0, wrongChecksum)
					go slowly(b, a, 0, nil)
				} else {
					h.ip(fmt.Sprintf("-n %s link add %s type veth peer name %s netns %s", h.ns, name, name, far.ns))
				}
			}
			newAckPair(h, far, c.families).testCopies()
		})
	}
}

// wrongChecksum says whether a packet is one of UDP over IPv6 that firewalls drop.
func wrongChecksum(packet []byte) bool {
	if packet[0]>>4 != 6 || packet[6] != protocolUDP {
		return false
	}
	udp := packet[40:]
	return udp[6]|udp[7] == 0 || sum(append(bytes.Clone(packet[8:40]), 0, protocolUDP, udp[4], udp[5]), udp) != 0xffff
}

func (a *ackPair) testCopies() {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<13)
	go func() {
		for part := range slices.Chunk(data, 1<<11) { // no faster than all ACKs are copied
			_, _ = a.served.Write(part)
			time.Sleep(2 * time.Millisecond)
		}
		a.served.Close()
	}()
	got, err := io.ReadAll(a.conn)
	a.must(err)
	if !bytes.Equal(got, data) {
		a.Errorf("%d bytes arrived of %d, or others", len(got), len(data))
	}
	var r bpf.AckRoute
	var l bpf.AckLead
	defer func() { a.Logf("%d copies sent; %+v", r.Copies, l) }()
	a.eventually(20*time.Second, "every native ACK has its copy", func() bool {
		r, l = a.counted()
		return r.Copies >= 10 && l.Copies == r.Copies && uint64(l.Natives) == r.Copies
	})
	for _, name := range []string{"TcpInErrs", "TcpInCsumErrors", "IpInHdrErrors"} {
		if n := a.far.counter(name); n != 0 {
			a.Errorf("packets were not as they should be: %s is %d", name, n)
		}
	}
}

// The end of what is sent is lost and repaired by a probe (TLP): that is a loss for the sender's TCP, and the probe's ACK, when it comes a second time, does not tell
// otherwise.
func TestACKTwinHidesNoLoss(t *testing.T) {
	last := []byte("the last of all")
	var lost atomic.Bool
	a := newSlowPair(t, 50*time.Millisecond, 10*time.Millisecond, func(b []byte) bool { return bytes.Contains(b, last) && !lost.Swap(true) })
	h := a.host
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	const tries = 10 // a busy machine repairs by a timeout now and then
	for i := 0; i < tries && a.far.counter("TcpExtTCPLossProbeRecovery") == 0; i++ {
		lost.Store(false)
		for range 5 {
			_, err := a.served.Write(make([]byte, 1000))
			h.must(err)
			time.Sleep(time.Millisecond)
		}
		_, err := a.served.Write(last)
		h.must(err)
		h.eventually(10*time.Second, "the end has been lost and repaired, and all twins have come", func() bool {
			r, l := a.counted()
			unacked, err := unix.IoctlGetInt(a.socket(), unix.SIOCOUTQ)
			h.must(err)
			return lost.Load() && unacked == 0 && uint64(l.Natives) == r.Copies
		})
		_, err = a.served.Write([]byte("more")) // whose ACK tells that the probe was no duplicate
		h.must(err)
		time.Sleep(100 * time.Millisecond)
	}
	_, l := a.counted()
	if n := a.far.counter("TcpExtTCPLossProbeRecovery"); n == 0 {
		t.Errorf("no loss of %d was seen as one; %+v", tries, l)
	}
}

// Copies that a filter of the sender takes away are no lead, for which its congestion control would make room; and the twins go on.
func TestACKCopiesFiltered(t *testing.T) {
	h, far := newSlowLink(t, 20*time.Millisecond, 0, nil)
	far.patient("10.9.0.1", "slow")
	a := newAckPair(h, far, "44")
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	far.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/quick/rp_filter", []byte("1"), 0) })
	for range 20 {
		_, err := a.served.Write(make([]byte, 10000))
		h.must(err)
		time.Sleep(10 * time.Millisecond)
	}
	var l bpf.AckLead
	h.eventually(10*time.Second, "everything is acknowledged", func() bool {
		unacked, err := unix.IoctlGetInt(a.socket(), unix.SIOCOUTQ)
		h.must(err)
		_, l = a.counted()
		return unacked == 0 && l.Leads > 3
	})
	if l.LeadUs > 0 || l.Copies == 0 {
		t.Errorf("copies that are filtered: %+v, want no lead", l)
	}
	if n := far.counter("TcpRetransSegs"); n != 0 {
		t.Errorf("%d segments were sent again", n)
	}
}

// Copies are given to the socket in slow start, and after that as its congestion control wants; what it is not given is timed.
func TestACKCopiesClosedOut(t *testing.T) {
	const slow = 40 * time.Millisecond
	h, far := newSlowLink(t, slow, 0, nil)
	far.patient("10.9.0.1", "slow") // what is sent again for a late ACK is the end of slow start
	a := newAckPair(h, far, "44")
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	write := func() (l bpf.AckLead) {
		_, before := a.counted()
		h.eventually(20*time.Second, "ACKs are copied and their twins come", func() bool {
			_, err := a.served.Write(make([]byte, 1000))
			h.must(err)
			time.Sleep(10 * time.Millisecond)
			_, l = a.counted()
			return l.Copies >= before.Copies+20 && l.Leads >= before.Leads+3
		})
		return l
	}
	first := write()
	if first.Used+first.Late != first.Copies {
		t.Errorf("in slow start %+v, want all copies used that are not late", first)
	}
	natives := a.sender.Maps[bpf.AcksMapPlaitAckNatives]
	h.must(natives.Put(uint32(a.socket()), bpf.AckNative{Closed: 1}))
	closed := write()
	if closed.Used > first.Used+1 { // one may have been on its way through the program
		t.Errorf("closed out, %d copies are used, %d before", closed.Used, first.Used)
	}
	if lead := time.Duration(closed.LeadUs) * time.Microsecond; lead < slow/2 {
		t.Errorf("closed out, the lead is %v, want about %v", lead, slow)
	}
	h.must(natives.Put(uint32(a.socket()), bpf.AckNative{}))
	if open := write(); open.Used < closed.Used+10 {
		t.Errorf("let in again, %d copies are used, %d before, of %d", open.Used, closed.Used, open.Copies)
	}
	var told bpf.AckNative
	h.must(natives.Lookup(uint32(a.socket()), &told))
	if told.Closed != 0 || told.LeadUs < uint32(slow.Microseconds()/2) || told.AtUs == 0 {
		t.Errorf("the congestion control is told %+v", told)
	}
}

// socket is the sender's.
func (a *ackPair) socket() (fd int) {
	a.Helper()
	c, err := a.served.(*net.TCPConn).SyscallConn()
	a.must(err)
	a.must(c.Control(func(f uintptr) { fd = int(f) }))
	return fd
}
