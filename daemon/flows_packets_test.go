package daemon

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/lab/netns"
)

// How the packets of these tests are encapsulated (RFC 8986 sections 5.1 and 5.2).
const (
	plain   = "plain"
	srv6    = "SRv6"         // with a segment routing header, even for a single segment, as Linux does it
	srv6Two = "SRv6, 2 SIDs" // the same with another segment
	reduced = "reduced SRv6" // the only segment is the destination
)

var ways = []string{plain, srv6, srv6Two, reduced}

// Numbers of protocols and flags, by IANA.
const (
	protocolIPv4, protocolTCP, protocolUDP, protocolIPv6, protocolRouting = 4, 6, 17, 41, 43

	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

// timestamps are TCP's option as Linux sends it, behind two of no meaning (RFC 7323 appendix A).
const timestamps = "\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02"

// packet is one of TCP, or of UDP, as it is on an Ethernet interface.
type packet struct {
	from, to               netip.AddrPort
	way                    string
	flags                  byte
	sequence, acknowledged uint32
	payload                int
	udp                    bool
	fragment               uint16 // bytes before it, of IPv4
	options                string // of TCP; empty: 12 bytes
	big                    bool   // its headers say what those of more than 64 KB do
}

// bytes of the packet; its checksums are not right, for nobody looks at them.
func (p packet) bytes() []byte {
	order := binary.BigEndian
	data := make([]byte, 20, 20+p.payload)
	order.PutUint16(data, p.from.Port())
	order.PutUint16(data[2:], p.to.Port())
	order.PutUint32(data[4:], p.sequence)
	order.PutUint32(data[8:], p.acknowledged)
	options := cmp.Or(p.options, timestamps)
	data[12], data[13] = byte(20+len(options))/4<<4, p.flags
	data = append(append(data, options...), make([]byte, p.payload)...)
	inside, protocol := byte(protocolIPv6), byte(protocolTCP)
	if p.udp {
		protocol = protocolUDP
	}
	data = network(p.from.Addr(), p.to.Addr(), protocol, data)
	if p.from.Addr().Is4() {
		inside = protocolIPv4
		order.PutUint16(data[6:], p.fragment/8)
	}
	if p.big {
		data = jumbogram(data)
	}
	sid, router := netip.MustParseAddr("2001:db8:f1:1::"), netip.MustParseAddr("2001:db8:1::10")
	segments := map[string]int{srv6: 1, srv6Two: 2}[p.way]
	if segments > 0 {
		header := make([]byte, 8+16*segments)
		header[0], header[1], header[2], header[3] = inside, byte(2*segments), 4, byte(segments-1)
		inside, data = protocolRouting, append(header, data...)
	}
	ethernet := make([]byte, 14)
	order.PutUint16(ethernet[12:], 0x86dd)
	if p.way != plain {
		data = ipv6(router, sid, inside, data)
	} else if inside == protocolIPv4 {
		order.PutUint16(ethernet[12:], 0x0800)
	}
	return append(ethernet, data...)
}

func ipv6(from, to netip.Addr, protocol byte, data []byte) []byte {
	header := make([]byte, 40)
	header[0], header[6], header[7] = 0x60, protocol, 64
	binary.BigEndian.PutUint16(header[4:], uint16(len(data)))
	copy(header[8:], from.AsSlice())
	copy(header[24:], to.AsSlice())
	return append(header, data...)
}

func (p packet) key() bpf.FlowKey {
	return bpf.FlowKey{Local: p.from.Addr().As16(), Remote: p.to.Addr().As16(), LocalPort: p.from.Port(), RemotePort: p.to.Port()}
}

// The flows of these tests: from an address of this host that is watched to a client, by family.
var (
	flow4 = packet{from: netip.MustParseAddrPort("192.0.2.1:443"), to: netip.MustParseAddrPort("198.51.100.7:50000"), way: plain, flags: flagACK}
	flow6 = packet{from: netip.MustParseAddrPort("[2001:db8:1::a]:443"), to: netip.MustParseAddrPort("[2001:db8:c::7]:50000"), way: plain, flags: flagACK}
)

// loadPrograms takes the programs into the kernel without packets of their own: tests run them (BPF_PROG_TEST_RUN).
func loadPrograms(h *host) *flows {
	h.Helper()
	return h.watches("lo", flow4.from.Addr(), flow6.from.Addr())
}

// run gives a packet to a program, which must let it pass.
func (f *flows) run(t *testing.T, program string, data []byte) {
	t.Helper()
	const next = 0xffffffff // TCX_NEXT
	verdict, err := f.Programs[program].Run(&ebpf.RunOptions{Data: data})
	if err != nil {
		t.Error(err)
	} else if verdict != next {
		t.Errorf("%s says %d, want TCX_NEXT", program, int32(verdict))
	}
}

// know makes a flow one that has 10,000 bytes on the way, from sequence number 1000 on.
func (f *flows) know(t testing.TB, p packet) {
	t.Helper()
	v := bpf.FlowsFlow{Stats: bpf.FlowStats{Acked: 1000, Next: 11_000, UnansweredAtNs: 1, Armed: 1}}
	if err := f.Maps[bpf.FlowsMapPlaitFlows].Put(p.key(), &v); err != nil {
		t.Fatal(err)
	}
}

func (f *flows) known(p packet) (bpf.FlowStats, bool) {
	return f.stats(mptcp.Ends{Local: p.from, Remote: p.to})
}

// What a client answers is understood in every encapsulation; what is no answer is not taken for one.
func TestFlowPacketsHeard(t *testing.T) {
	f := loadPrograms(newNamespace(t))
	for _, flow := range []packet{flow4, flow6} {
		for _, way := range ways {
			flow.way, flow.acknowledged = way, 4000
			answer := flow.back()
			with := func(change func(*packet)) []byte {
				p := answer
				change(&p)
				return p.bytes()
			}
			for _, c := range []struct {
				name string
				data []byte
				want uint32 // acknowledged afterwards
			}{
				{"ACK", answer.bytes(), 4000},
				{"ACK of everything with data", with(func(p *packet) { p.acknowledged, p.payload = 11_000, 1000 }), 11_000},
				{"old ACK", with(func(p *packet) { p.acknowledged = 999 }), 1000},
				{"reset", with(func(p *packet) { p.flags |= flagRST }), 1000},
				{"handshake of another connection", with(func(p *packet) { p.flags = flagSYN }), 1000},
				{"UDP", with(func(p *packet) { p.udp = true }), 1000},
				{"other port", with(func(p *packet) { p.to = netip.AddrPortFrom(p.to.Addr(), 444) }), 1000},
				{"other direction", flow.bytes(), 1000},
				{"cut", answer.bytes()[:len(answer.bytes())-20], 1000},
			} {
				f.know(t, flow)
				f.run(t, bpf.FlowsProgPlaitFlowHeard, c.data)
				if s, ok := f.known(flow); !ok || s.Acked != c.want {
					t.Errorf("%v, %s, %s: acknowledged %d, want %d", flow.from, way, c.name, s.Acked, c.want)
				}
			}
		}
	}
	f.know(t, flow4)
	fragment := flow4.back()
	fragment.acknowledged, fragment.fragment = 4000, 1480
	f.run(t, bpf.FlowsProgPlaitFlowHeard, fragment.bytes())
	if s, _ := f.known(flow4); s.Acked != 1000 {
		t.Errorf("a fragment that does not begin with a TCP header: acknowledged %d, want 1000", s.Acked)
	}
}

// Data of the client says nothing of the way there, so that the length of the payload matters, and with it that of all headers before it. Nor does its end, or its
// handshake: they come again and again where nothing arrives.
func TestFlowPacketsData(t *testing.T) {
	f := loadPrograms(newNamespace(t))
	for _, flow := range []packet{flow4, flow6} {
		for _, way := range ways {
			for _, c := range []struct {
				flags   byte
				payload int
				heard   bool
				big     bool
			}{{flagACK, 0, true, false}, {flagACK, 1, false, false}, {flagFIN | flagACK, 0, false, false}, {flagSYN | flagACK, 0, false, false}, {flagACK, 0, true, true}, {flagACK, 1, false, true}} {
				flow.way, flow.acknowledged, flow.flags, flow.payload, flow.big = way, 1000, c.flags, c.payload, c.big
				f.know(t, flow)
				f.run(t, bpf.FlowsProgPlaitFlowHeard, flow.back().bytes())
				if s, _ := f.known(flow); (s.HeardAtNs != 0) != c.heard {
					t.Errorf("%v, %s, the same ACK with flags %d and %d bytes, big: %v: heard at %d", flow.from, way, c.flags, c.payload, c.big, s.HeardAtNs)
				}
			}
		}
	}
}

// How long a connection took is told when the client has acknowledged all that was on the way, in whatever form it says so (RFC 8684 section 3.3), or a part of
// it after 2 s; TCP's own acknowledgements, and little data, say nothing.
func TestFlowPacketsTransfer(t *testing.T) {
	h := newNamespace(t)
	f := loadPrograms(h)
	const token, all = 7, 200_000
	from := uint32(1<<32 - 1000)
	order := binary.BigEndian
	short := func(ack uint32) string { return "\x1e\x08\x20\x01" + string(order.AppendUint32(nil, ack)) }
	long := func(ack uint32) string {
		return "\x1e\x0c\x20\x03" + string(order.AppendUint64(nil, 5<<32|uint64(ack)))
	}
	mapping := func(ack uint32) string { return "\x1e\x1c\x20\x0f" + long(ack)[4:] + strings.Repeat("\xff", 16) }
	for _, c := range []struct {
		name    string
		options string
		payload int
		ago     time.Duration
		bytes   uint32 // 0: nothing is told
	}{
		{"all", timestamps + short(from+all), 0, time.Second, all},
		{"all, without timestamps", short(from + all), 0, time.Second, all},
		{"all, in 8 bytes", timestamps + long(from+all), 0, time.Second, all},
		{"all, with data of the client", timestamps + mapping(from+all), 1000, time.Second, all},
		{"the connection's end, too", timestamps + short(from+all+1), 0, time.Second, all},
		{"a part", timestamps + short(from+150_000), 0, time.Second, 0},
		{"a part, after long", timestamps + short(from+150_000), 0, 3 * time.Second, 150_000},
		{"little, after long", timestamps + short(from+100_000), 0, 3 * time.Second, 0},
		{"a mapping alone", timestamps + "\x1e\x14\x20\x0c" + strings.Repeat("\xff", 16), 1000, time.Second, 0},
		{"an announcement (ADD_ADDR)", timestamps + "\x1e\x08\x30\x01" + short(from + all)[4:], 0, time.Second, 0},
		{"TCP alone", timestamps, 0, 3 * time.Second, 0},
	} {
		for _, flow := range []packet{flow4, flow6} {
			for _, flow.way = range ways {
				known := bpf.FlowsFlow{Stats: bpf.FlowStats{Acked: 1000, Next: 11_000, UnansweredAtNs: 1, Armed: 1, Token: token}}
				h.must(f.Maps[bpf.FlowsMapPlaitFlows].Put(flow.key(), &known))
				on := bpf.FlowsConnection{BeganNs: monotonicNs() - uint64(c.ago), From: from, Next: from + all}
				h.must(f.Maps[bpf.FlowsMapPlaitConnections].Put(uint32(token), &on))
				flow.acknowledged, flow.options, flow.payload = 11_000, c.options, c.payload
				f.run(t, bpf.FlowsProgPlaitFlowHeard, flow.back().bytes())
				f.transfers.SetDeadline(time.Now().Add(10 * time.Millisecond)) // it is there already
				told, err := f.transferred()
				if c.bytes == 0 {
					if !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s, %v, %s: told %+v, %v", c.name, flow.from, flow.way, told, err)
					}
					continue
				}
				if took := time.Duration(told.us) * time.Microsecond; err != nil || told.token != token || told.bytes != c.bytes || took < c.ago || took > c.ago+time.Second {
					t.Errorf("%s, %v, %s: told %+v, %v; want %d bytes in %v", c.name, flow.from, flow.way, told, err, c.bytes, c.ago)
				}
			}
		}
	}
}

// However much a connection sends in the time of a part, all of it is told.
func TestFlowPacketsTransferFast(t *testing.T) {
	h := newNamespace(t)
	f := loadPrograms(h)
	const token, window, windows = 7, 512 << 20, 10
	flow, began := flow4, monotonicNs()
	h.must(f.Maps[bpf.FlowsMapPlaitFlows].Put(flow.key(), &bpf.FlowsFlow{Stats: bpf.FlowStats{Acked: 1000, Next: 1 << 30, UnansweredAtNs: 1, Armed: 1, Token: token}}))
	h.must(f.Maps[bpf.FlowsMapPlaitConnections].Put(uint32(token), &bpf.FlowsConnection{BeganNs: began}))
	for n := uint32(1); n <= windows; n++ {
		var on bpf.FlowsConnection
		h.must(f.Maps[bpf.FlowsMapPlaitConnections].Lookup(uint32(token), &on))
		on.Next = n*window + 1
		if n == windows {
			on.Next--
		}
		h.must(f.Maps[bpf.FlowsMapPlaitConnections].Put(uint32(token), &on))
		flow.acknowledged, flow.options = 1000+n, timestamps+"\x1e\x08\x20\x01"+string(binary.BigEndian.AppendUint32(nil, n*window))
		f.run(t, bpf.FlowsProgPlaitFlowHeard, flow.back().bytes())
	}
	var bytes, us uint64
	f.transfers.SetDeadline(time.Now().Add(100 * time.Millisecond)) // they are there already
	for {
		told, err := f.transferred()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		h.must(err)
		bytes, us = bytes+uint64(told.bytes), us+uint64(told.us)
	}
	if all := uint64(windows * window); bytes != all || us > (monotonicNs()-began)/1000 {
		t.Errorf("%d bytes in %d us are told, want %d", bytes, us, all)
	}
}

// CPUs that hear a flow's ACKs at the same time, as two queues of a network card or two interfaces: each byte counts once.
func TestFlowPacketsAtOnce(t *testing.T) {
	h := newNamespace(t)
	f := loadPrograms(h)
	const step, acks = 1000, 100_000
	flow := flow4
	known := bpf.FlowsFlow{Stats: bpf.FlowStats{Next: step * acks, UnansweredAtNs: 1, Armed: 1}}
	h.must(f.Maps[bpf.FlowsMapPlaitFlows].Put(flow.key(), &known))
	var at atomic.Uint32
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for n := at.Add(step); n <= step*acks; n = at.Add(step) {
				answer := flow.back()
				answer.acknowledged = n
				f.run(t, bpf.FlowsProgPlaitFlowHeard, answer.bytes())
			}
		})
	}
	both.Wait()
	if s, _ := f.known(flow); s.AckedBytes != step*acks || s.Acked != step*acks {
		t.Errorf("%d bytes acknowledged, up to %d; want %d of both", s.AckedBytes, s.Acked, step*acks)
	}
}

// A handshake begins a flow anew, in every encapsulation. It shows what the program makes of outgoing packets: their sockets are none of TCP in
// BPF_PROG_TEST_RUN, which is where counting begins.
func TestFlowPacketsSent(t *testing.T) {
	f := loadPrograms(newNamespace(t))
	for _, flow := range []packet{flow4, flow6} {
		for _, way := range ways {
			flow.way, flow.flags = way, flagSYN|flagACK
			data, other, udp := flow, flow, flow
			data.flags, data.payload = flagACK, 1400
			other.to = netip.AddrPortFrom(flow.to.Addr(), 50001)
			udp.udp = true
			f.know(t, flow)
			for _, p := range []packet{data, other, udp, flow.back()} {
				f.run(t, bpf.FlowsProgPlaitFlowSent, p.bytes())
			}
			if _, ok := f.known(flow); !ok {
				t.Errorf("%v, %s: forgotten without a handshake", flow.from, way)
			}
			f.run(t, bpf.FlowsProgPlaitFlowSent, flow.bytes())
			if _, ok := f.known(flow); ok {
				t.Errorf("%v, %s: still known after another handshake", flow.from, way)
			}
		}
	}
}

// tunnel joins the host's namespace with a peer's, so that the flows of these tests leave net0 in one of the ways. The peer is border router and client.
func (h *host) tunnel(way, link string) (peer string) {
	h.Helper()
	_, peer = h.veth(link)
	const sid4, sid6 = "2001:db8:f1:4::", "2001:db8:f1:6::"
	for ns, addresses := range map[string][]netip.Addr{h.ns: {flow4.from.Addr(), flow6.from.Addr()}, peer: {flow4.to.Addr(), flow6.to.Addr()}} {
		for _, a := range addresses {
			// without nodad an address can be tentative for a moment, even on lo
			h.ip("-n " + ns + " addr add " + a.String() + " dev lo" + map[bool]string{true: " nodad"}[a.Is6()])
		}
		for _, name := range []string{"all", "net0"} {
			h.must(netns.Do(ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/seg6_enabled", []byte("1"), 0) }))
		}
	}
	h.ip("-n " + h.ns + " addr add 2001:db8:9::1/64 dev net0 nodad")
	h.ip("-n " + peer + " addr add 2001:db8:9::2/64 dev net0 nodad")
	h.ip("-n " + peer + " -6 route add " + sid6 + " encap seg6local action End.DT6 table 255 dev net0")
	h.ip("-n " + peer + " -6 route add " + sid4 + " encap seg6local action End.DX4 nh4 " + flow4.to.Addr().String() + " dev net0")
	h.ip("-n " + h.ns + " -6 route add 2001:db8:f1::/48 via 2001:db8:9::2")
	h.ip("-n " + peer + " route add " + flow4.from.Addr().String() + " via 10.9.0.1 src " + flow4.to.Addr().String())
	h.ip("-n " + peer + " -6 route add " + flow6.from.Addr().String() + " via 2001:db8:9::1 src " + flow6.to.Addr().String())
	for _, one := range [][2]string{{flow4.to.Addr().String(), sid4}, {flow6.to.Addr().String(), sid6}} {
		encapsulated := map[string]string{plain: "dev net0", srv6: "encap seg6 mode encap segs " + one[1] + " dev net0", reduced: "encap seg6 mode encap.red segs " + one[1] + " dev net0"}[way]
		if way == plain {
			encapsulated = "via inet6 2001:db8:9::2"
		}
		h.ip("-n " + h.ns + " route add " + one[0] + " " + encapsulated)
	}
	return peer
}

// What Linux makes of the data of a socket is understood: IPv4 and IPv6, SRv6 with and without a segment routing header.
func TestFlowsInTunnels(t *testing.T) {
	for _, way := range []string{plain, srv6, reduced} {
		t.Run(way, func(t *testing.T) {
			h := newNamespace(t)
			peer := h.tunnel(way, "mtu 1500")
			f := h.watches("net0", flow4.from.Addr(), flow6.from.Addr())
			for _, flow := range []packet{flow4, flow6} {
				c, err := h.connectTo(flow.from.Addr().String(), 0, peer, "")
				h.must(err)
				defer c.close()
				ends := endsOfServer(c)
				if ends.Remote.Addr().Unmap() != flow.to.Addr() {
					t.Fatalf("the client is %v, want %v", ends.Remote, flow.to)
				}
				total := uint64(0)
				for _, n := range []int{5000, 1 << 20, 5000} { // no ACK of the last data is followed by data
					total += uint64(n)
					h.must(transfer(c, n))
					h.eventually(20*time.Second, fmt.Sprintf("%d bytes are counted as acknowledged", total), func() bool {
						s, _ := f.stats(ends)
						return s.AckedBytes == total
					})
				}
				if s, ok := f.stats(ends); !ok || s.SrttUs == 0 || s.SentSegments < uint32(total/1500) {
					t.Errorf("%v: known %v: %+v", ends, ok, s)
				}
			}
		})
	}
}

// Of a connection that is older than plait, what was before does not count.
func TestFlowsCountFromNow(t *testing.T) {
	h := newNamespace(t)
	peer := h.tunnel(plain, "mtu 1500")
	c, err := h.connectTo(flow4.from.Addr().String(), 0, peer, "")
	h.must(err)
	defer c.close()
	h.must(transfer(c, 1<<20))
	f := h.watches("net0", flow4.from.Addr())
	h.must(transfer(c, 1000))
	ends := endsOfServer(c)
	h.eventually(20*time.Second, "1000 bytes in one segment are counted", func() bool {
		s, _ := f.stats(ends)
		return s.AckedBytes == 1000 && s.SentSegments == 1
	})
}

// An ACK of what was never sent, which TCP does not believe and anybody may forge, leaves a flow measured.
func TestFlowHearsTheImpossible(t *testing.T) {
	h, peer := joined(t)
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	defer c.close()
	h.must(transfer(c, 10_000))
	ends := endsOfServer(c)
	h.eventually(20*time.Second, "10,000 bytes are acknowledged", func() bool { s, _ := f.stats(ends); return s.AckedBytes == 10_000 })
	s, _ := f.stats(ends)
	peer.in(func() error {
		raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(raw)
		return unix.Sendto(raw, tcpACK(ends.Remote, ends.Local, s.Acked+1<<30, 1), 0, &unix.SockaddrInet4{Addr: ends.Local.Addr().As4()})
	})
	h.eventually(20*time.Second, "the ACK is heard", func() bool { s, _ := f.stats(ends); return s.Acked != s.Next })
	h.must(transfer(c, 1<<20))
	h.eventually(20*time.Second, "all is acknowledged", func() bool {
		s, _ = f.stats(ends)
		return s.AckedBytes == 10_000+1<<20 && s.Acked == s.Next && s.UnansweredAtNs == 0
	})
}

// Flows are over that are idle for long, or wait for an answer for longer than TCP does.
func TestFlowsOver(t *testing.T) {
	const now = uint64(3 * time.Hour)
	ago := func(d time.Duration) uint64 { return now - uint64(d) }
	for _, c := range []struct {
		name string
		flow bpf.FlowsFlow
		over bool
	}{
		{"just begun", bpf.FlowsFlow{BeganAtNs: now}, false},
		{"heard lately", bpf.FlowsFlow{BeganAtNs: ago(time.Hour), Stats: bpf.FlowStats{HeardAtNs: ago(idleFor / 2)}}, false},
		{"waits", bpf.FlowsFlow{BeganAtNs: ago(time.Hour), Stats: bpf.FlowStats{HeardAtNs: ago(time.Hour), UnansweredAtNs: ago(hopelessIn / 2)}}, false},
		{"idle", bpf.FlowsFlow{BeganAtNs: ago(time.Hour), Stats: bpf.FlowStats{HeardAtNs: ago(2 * idleFor)}}, true},
		{"never sent data", bpf.FlowsFlow{BeganAtNs: ago(2 * idleFor)}, true},
		{"waits for nobody", bpf.FlowsFlow{BeganAtNs: ago(time.Hour), Stats: bpf.FlowStats{UnansweredAtNs: ago(2 * hopelessIn)}}, true},
	} {
		if is := over(&c.flow, now); is != c.over {
			t.Errorf("%s: over: %v", c.name, is)
		}
	}
}

// Flows that are over are forgotten when they have been read, others not.
func TestFlowsForget(t *testing.T) {
	h := newNamespace(t)
	f := loadPrograms(h)
	idle, fresh := flow4, flow6
	h.must(f.Maps[bpf.FlowsMapPlaitFlows].Put(idle.key(), &bpf.FlowsFlow{BeganAtNs: monotonicNs() - uint64(idleFor) - 1})) // before 0 where the machine is younger
	h.must(f.Maps[bpf.FlowsMapPlaitFlows].Put(fresh.key(), &bpf.FlowsFlow{BeganAtNs: monotonicNs()}))
	read := map[bpf.FlowKey]bool{}
	h.must(f.count(func(k bpf.FlowKey, _ mptcp.Ends, _ *bpf.FlowStats) { read[k] = true }))
	_, was := f.known(idle)
	_, is := f.known(fresh)
	if !read[idle.key()] || !read[fresh.key()] || was || !is {
		t.Errorf("read: %v; known afterwards: the idle one %v, the fresh one %v", read, was, is)
	}
}
