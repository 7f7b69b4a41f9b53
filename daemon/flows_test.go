package daemon

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/lab/netns"
)

func endsOfServer(p pair) mptcp.Ends {
	return mptcp.Ends{Local: p.server.LocalAddr().(*net.TCPAddr).AddrPort(), Remote: p.server.RemoteAddr().(*net.TCPAddr).AddrPort()}
}

// watches has the flows watched that leave an interface from some addresses, until the test ends.
func (h *host) watches(interfaceName string, from ...netip.Addr) (f *flows) {
	h.Helper()
	h.in(func() (err error) {
		f, err = openFlows(interfaceName, from, nil)
		return err
	})
	h.Cleanup(func() { h.must(f.Close()) })
	return f
}

// joined are two hosts, with two addresses of the first on the link between them: out, in.
func joined(t *testing.T) (h, peer *host) {
	h = newNamespace(t)
	return h, h.joined()
}

// joined is the second one.
func (h *host) joined() (peer *host) {
	peer = h.second("-peer")
	h.ip("-n " + h.ns + " link add out type veth peer name in netns " + peer.ns)
	for _, one := range []struct{ ns, dev, address string }{{h.ns, "out", "192.0.2.1/24"}, {h.ns, "out", "192.0.2.3/24"}, {peer.ns, "in", "192.0.2.2/24"}} {
		h.ip("-n " + one.ns + " address add " + one.address + " dev " + one.dev)
		h.ip("-n " + one.ns + " link set " + one.dev + " up")
	}
	return peer
}

// lostFrames has what leaves a joined host go to a station that nobody is, until the returned function is called.
func (h *host) lostFrames() (found func()) {
	h.Helper()
	h.ip("-n " + h.ns + " neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev out nud permanent")
	return func() { h.ip("-n " + h.ns + " neigh del 192.0.2.2 dev out") }
}

// watchedFlow is the only one that is watched, with what is told of it.
type watchedFlow struct {
	*host
	flows  *flows
	ends   mptcp.Ends
	events chan flowEvent
	stalls uint32 // that were told
}

func (h *host) toldOf(f *flows, ends mptcp.Ends) *watchedFlow {
	w := &watchedFlow{host: h, flows: f, ends: ends, events: make(chan flowEvent, 100)}
	go func() {
		defer close(w.events)
		for {
			e, err := f.read()
			if err != nil {
				return
			}
			w.events <- e
		}
	}()
	return w
}

// next waits for an event.
func (w *watchedFlow) next(news bpf.FlowNews) {
	w.Helper()
	select {
	case e := <-w.events:
		if e.ends != w.ends || e.news != news {
			w.Fatalf("%+v, want news %v of %v", e, news, w.ends)
		}
		if news == bpf.FlowStalled {
			w.stalls++
		}
	case <-time.After(10 * time.Second):
		w.Fatalf("no event within 10 s, want news %v of %v", news, w.ends)
	}
}

// arrives has something sent that is answered, without a stall. There may be one now and then: on a host that gives the peer no processor nobody answers.
func (w *watchedFlow) arrives(send func()) (s bpf.FlowStats) {
	w.Helper()
	for range 10 {
		send()
		w.eventually(10*time.Second, "all is answered", func() bool {
			s, _ = w.flows.stats(w.ends)
			return s.AckedBytes > 0 && s.UnansweredAtNs == 0 && s.StalledAtNs == 0
		})
		if s.Stalls == w.stalls {
			return s
		}
		for w.stalls < s.Stalls {
			w.next(bpf.FlowStalled)
			w.next(bpf.FlowHeard)
		}
	}
	w.Fatalf("what is sent arrives, and the flow has stalled each of 10 times: %+v", s)
	return s
}

// A flow whose packets no longer arrive is told once, though the peer goes on sending data, and again when it is heard; other flows are not watched.
func TestFlowStalls(t *testing.T) {
	h, peer := joined(t)
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	watched, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	defer watched.close()
	unwatched, err := h.connectTo("192.0.2.3", 0, peer.ns, "")
	h.must(err)
	defer unwatched.close()
	for _, c := range []net.Conn{watched.server, watched.client, unwatched.client} {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	talk := func(c net.Conn, n int) {
		for range n {
			_, err := c.Write(make([]byte, 10_000))
			h.must(err)
			time.Sleep(time.Millisecond)
		}
	}
	ends, other := endsOfServer(watched), endsOfServer(unwatched)
	flow := h.toldOf(f, ends)
	if s := flow.arrives(func() { talk(watched.server, 20) }); s.SrttUs == 0 || s.HeardAtNs == 0 {
		t.Fatalf("flow %v: %+v", ends, s)
	}
	talk(unwatched.server, 20)
	if s, ok := f.stats(other); ok {
		t.Errorf("flow %v of another address: %+v", other, s)
	}
	found := h.lostFrames()
	talk(watched.server, 3) // more would fill the socket's buffer
	talk(watched.client, 3)
	flow.next(bpf.FlowStalled)
	found()
	flow.next(bpf.FlowHeard)
	if s, _ := f.stats(ends); s.Stalls != flow.stalls || s.RetransmittedSegments == 0 {
		t.Errorf("%+v, want one stall more, %d in all, and retransmissions", s, flow.stalls)
	}
	flow.arrives(func() { talk(watched.server, 1) })
	h.must(watched.server.CloseWrite())
	select { // longer than any patience here
	case e := <-flow.events:
		t.Errorf("%+v: the end of a connection is no stall", e)
	case <-time.After(time.Second):
	}
}

// A flow that is first seen when it repeats something has all on the way that its socket has: what it repeats is nothing new to be timed, and what is behind it does not wait.
func TestFlowFirstSeenInALoss(t *testing.T) {
	h, peer := joined(t)
	c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	defer c.close()
	h.must(c.server.SetWriteBuffer(2 << 20))
	h.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_slow_start_after_idle", []byte("0"), 0) }) // ip may take longer than an RTO
	const bytes = 100_000
	h.eventually(20*time.Second, "the window has grown", func() bool {
		h.must(transfer(c, 1<<20))
		return h.window(c.server) > bytes/1000
	})
	h.acknowledged(c.server)
	lost := h.lostFrames()
	_, err = c.server.Write(make([]byte, bytes))
	h.must(err)
	time.Sleep(100 * time.Millisecond) // the probe of the last segment (TLP) is gone by then, the timer comes later
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	ends := endsOfServer(c)
	h.eventually(30*time.Second, "the flow is known", func() bool { _, ok := f.stats(ends); return ok })
	if s, _ := f.stats(ends); s.Next-s.Acked != bytes || s.WaitingAtNs != 0 || s.TimedAtNs != 0 {
		t.Errorf("%d bytes are on the way, waiting since %d, timed since %d; want %d, of which none wait or are timed", s.Next-s.Acked, s.WaitingAtNs, s.TimedAtNs, bytes)
	}
	lost()
}

// loses has a host drop what arrives at its interface with one of n sequence numbers, by TCP over IPv4 without options, until the returned link is closed.
func (h *host) loses(interfaceName string, sequence, n uint32) (l link.Link) {
	h.Helper()
	const next, drop, at = -1, 2, 14 + 20 + 4 // TCX_NEXT, TCX_DROP, where the number is
	h.in(func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadAbs(at, asm.Word),
			asm.Mov.Reg32(asm.R1, asm.R0),
			asm.Sub.Imm32(asm.R1, int32(sequence)),
			asm.Mov.Imm32(asm.R0, drop),
			asm.JLT.Imm32(asm.R1, int32(n), "end"),
			asm.Mov.Imm32(asm.R0, next),
			asm.Return().WithSymbol("end"),
		}})
		if err != nil {
			return err
		}
		defer prog.Close()
		device, err := net.InterfaceByName(interfaceName)
		if err != nil {
			return err
		}
		l, err = link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
		return err
	})
	return l
}

// More flows that stall than the kernel half has room to tell of are found by those who look at them.
func TestManyFlowsStall(t *testing.T) {
	h, peer := joined(t)
	spec, err := bpf.LoadFlows()
	h.must(err)
	spec.Maps[bpf.FlowsMapPlaitFlowEvents].MaxEntries = uint32(os.Getpagesize()) // room for some 70
	var f *flows
	h.must(netns.Do(h.ns, func() (err error) {
		f, err = loadFlows(spec, "out", []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil)
		return err
	}))
	defer f.Close()
	all := make([]pair, 120)
	for i := range all {
		all[i], err = h.connectTo("192.0.2.1", 0, peer.ns, "")
		h.must(err)
		defer all[i].close()
		go func() { _, _ = io.Copy(io.Discard, all[i].client) }()
		_, err = all[i].server.Write(make([]byte, 5000))
		h.must(err)
	}
	time.Sleep(300 * time.Millisecond)
	h.ip("-n " + h.ns + " neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev out nud permanent")
	for _, p := range all {
		_, err := p.server.Write(make([]byte, 5000))
		h.must(err)
	}
	h.eventually(20*time.Second, "each flow is told of, or found", func() bool {
		told, found := 0, 0
		for _, p := range all {
			s, _ := f.stats(endsOfServer(p))
			if s.StalledAtNs != 0 {
				told++
			} else if overdue(&s) {
				found++
			}
		}
		return told+found == len(all) && told < len(all)
	})
	x := choosing(t, Service{egress.Throughput, 0})
	x.flows, x.config.Interface, x.overdue = f, "out", make(chan mptcp.Ends, 1)
	h.must(netns.Do(h.ns, func() error {
		x.look(time.Now())
		x.look(time.Now())
		return nil
	}))
	if said := x.lines(); len(said) != 1 || !strings.Contains(said[0].Text, fmt.Sprintf("of %d flows", len(all))) {
		t.Errorf("the log has %v, want once that some have no timer", said)
	}
}

// Data that a flow, or its MPTCP connection, cannot send yet is noticed, until it has left.
func TestFlowWaits(t *testing.T) {
	for _, protocol := range []string{"TCP", "MPTCP"} {
		t.Run(protocol, func(t *testing.T) {
			h, peer := joined(t)
			h.multipath = protocol == "MPTCP"
			h.tool("tc -n " + h.ns + " qdisc add dev out root tbf rate 5mbit burst 50kb latency 20ms")
			f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
			c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
			h.must(err)
			defer c.close()
			ends := endsOfServer(c)
			if _, err = c.server.Write(make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
			h.eventually(20*time.Second, "the flow is known", func() bool { _, known := f.stats(ends); return known })
			if s, _ := f.stats(ends); s.WaitingAtNs != 0 || (s.Token != 0) != h.multipath {
				t.Errorf("after 5000 bytes: %+v", s)
			}
			const much = 10 << 20 // 17 s
			go func() { _, _ = c.server.Write(make([]byte, much)) }()
			arrived := make(chan error, 1)
			go func() {
				_, err := io.CopyN(io.Discard, c.client, 5000+much)
				arrived <- err
			}()
			h.eventually(10*time.Second, "data waits", func() bool { s, _ := f.stats(ends); return waits(&s) })
			h.tool("tc -n " + h.ns + " qdisc del dev out root")
			h.must(<-arrived)
			if s, _ := f.stats(ends); s.WaitingAtNs != 0 {
				t.Errorf("when all has arrived: %+v", s)
			}
		})
	}
}

// hears checks that a flow is answered and not stalled. It may have been for a moment: on a host that gives the peer no processor for 10 ms nobody answers.
func (h *host) hears(f *flows, c pair) {
	h.Helper()
	h.eventually(10*time.Second, "the flow is heard and is not stalled", func() bool {
		_, err := c.server.Write(make([]byte, 1000))
		h.must(err)
		s, ok := f.stats(endsOfServer(c))
		return ok && s.AckedBytes > 0 && s.HeardAtNs > 0 && s.StalledAtNs == 0
	})
}

// Answers may come by another interface than the one that is watched, as on a host with two uplinks: the flow is well all the same.
func TestFlowHeardElsewhere(t *testing.T) {
	h, peer := joined(t)
	h.ip("-n " + h.ns + " link add back type veth peer name forth netns " + peer.ns)
	h.ip("-n " + h.ns + " link set back up")
	h.ip("-n " + peer.ns + " addr add 198.51.100.2/24 dev forth")
	h.ip("-n " + peer.ns + " link set forth up")
	h.ip("-n " + h.ns + " addr add 198.51.100.1/24 dev back")
	h.ip("-n " + peer.ns + " route add 192.0.2.1/32 via 198.51.100.1 dev forth src 192.0.2.2")
	for _, ns := range []string{h.ns, peer.ns} {
		h.must(netns.Do(ns, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0) }))
	}
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	defer c.close()
	go func() { _, _ = io.Copy(io.Discard, c.client) }()
	ends := endsOfServer(c)
	for range 300 {
		_, err := c.server.Write(make([]byte, 10_000))
		h.must(err)
		time.Sleep(time.Millisecond)
	}
	h.hears(f, c)
	answered := func() (is bool) {
		h.in(func() (err error) { is, err = mptcp.Answered(ends); return err })
		return is
	}
	h.eventually(10*time.Second, "all is answered, as the socket has it", answered)
	h.ip("-n " + h.ns + " neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev out nud permanent") // nobody's: frames are lost
	_, err = c.server.Write(make([]byte, 1000))
	h.must(err)
	if time.Sleep(100 * time.Millisecond); answered() {
		t.Error("the socket has an answer to what was lost")
	}
}

// What a client sends to keep a connection alive says nothing of the way to it, while nothing is on the way, and while that does not arrive.
func TestKeepaliveIsNoAnswer(t *testing.T) {
	h, peer := joined(t)
	f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
	c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	defer c.close()
	go func() { _, _ = io.Copy(io.Discard, c.client) }()
	ends := endsOfServer(c)
	send := func() {
		_, err := c.server.Write(make([]byte, 1000))
		h.must(err)
	}
	stats := func() (s bpf.FlowStats) { s, _ = f.stats(ends); return s }
	sent := uint64(0)
	h.eventually(20*time.Second, "an answer to data counts, and comes before anybody takes it for late", func() bool {
		before := stats()
		send()
		sent += 1000
		h.eventually(10*time.Second, "an answer to data counts", func() bool { s := stats(); return s.AckedBytes == sent && s.HeardAtNs > before.HeardAtNs })
		s := stats()
		return s.Stalls == before.Stalls && s.RetransmittedSegments == before.RetransmittedSegments
	})
	stalls, answered := stats().Stalls, stats().HeardAtNs
	keeps := func(when string) {
		before := peer.counter("TcpExtTCPKeepAlive")
		h.eventually(10*time.Second, "the client keeps its connection alive", func() bool { return peer.counter("TcpExtTCPKeepAlive") > before+1 })
		if s := stats(); s.HeardAtNs != answered {
			t.Errorf("%s the flow counts as heard by ACKs that answer nothing: %+v", when, s)
		}
	}
	h.must(c.client.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second}))
	keeps("idle")
	found := h.lostFrames()
	send()
	keeps("stalled")
	if s := stats(); s.StalledAtNs == 0 || s.Stalls != stalls+1 {
		t.Errorf("what is sent does not arrive, and the flow does not stall once: %+v", s)
	}
	found()
	h.eventually(20*time.Second, "it is answered again", func() bool { s := stats(); return s.StalledAtNs == 0 && s.HeardAtNs > answered })
}

// A program of somebody else's that was there before, and lets packets pass for good, hides neither what is sent nor that it is answered.
func TestFlowsBehindAnother(t *testing.T) {
	for _, direction := range []ebpf.AttachType{ebpf.AttachTCXEgress, ebpf.AttachTCXIngress} {
		t.Run(direction.String(), func(t *testing.T) {
			h, peer := joined(t)
			h.in(func() error {
				const pass = 0 // TCX_PASS: no program behind sees it
				prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm32(asm.R0, pass), asm.Return()}})
				h.must(err)
				defer prog.Close()
				device, err := net.InterfaceByName("out")
				h.must(err)
				l, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: prog, Attach: direction})
				h.must(err)
				h.Cleanup(func() { h.must(l.Close()) })
				return nil
			})
			f := h.watches("out", netip.MustParseAddr("192.0.2.1"))
			c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
			h.must(err)
			defer c.close()
			go func() { _, _ = io.Copy(io.Discard, c.client) }()
			for range 100 {
				_, err := c.server.Write(make([]byte, 10_000))
				h.must(err)
				time.Sleep(time.Millisecond)
			}
			h.hears(f, c)
		})
	}
}

// back is a packet of the other direction.
func (p packet) back() packet {
	p.from, p.to = p.to, p.from
	return p
}

// jumbogram is a packet as Linux has it in memory where it is too long for its header: IPv4 has no length then, IPv6 one in a header of its own (RFC 2675).
func jumbogram(data []byte) []byte {
	if data[0]>>4 == 4 {
		data[2], data[3] = 0, 0
		return data
	}
	hops := []byte{data[6], 0, 0xc2, 4, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(hops[4:], uint32(len(data)-40+len(hops)))
	data[4], data[5], data[6] = 0, 0, 0
	return slices.Insert(data, 40, hops...)
}

// Segments of more than 64 KB, which hosts with quick cards send (BIG TCP), count as others do.
func TestFlowOfBigSegments(t *testing.T) {
	h := newNamespace(t)
	peer := h.tunnel(plain, "mtu 1500")
	h.ip("-n " + h.ns + " link set net0 gso_max_size 180000")
	f := h.watches("net0", flow6.from.Addr())
	c, err := h.connectTo(flow6.from.Addr().String(), 0, peer, "")
	h.must(err)
	defer c.close()
	const bytes = 8 << 20
	total := uint64(0)
	h.eventually(time.Minute, "segments of more than 64 KB leave", func() bool {
		before := h.counter("Ip6OutRequests")
		h.must(transfer(c, bytes))
		total += bytes
		return h.counter("Ip6OutRequests")-before < bytes/(64<<10)
	})
	h.eventually(20*time.Second, "all is counted as acknowledged", func() bool {
		s, _ := f.stats(endsOfServer(c))
		return s.AckedBytes == total && s.SentSegments >= uint32(total/1500)
	})
}
