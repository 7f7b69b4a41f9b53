package daemon

import (
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// sticking is a flow of MPTCP over 20 Mbit/s that is known, and has nothing on the way.
func sticking(t *testing.T) (h, peer *host, f *flows, c pair, ends mptcp.Ends) {
	h, peer = joined(t)
	h.multipath = true
	f = h.watches("out", netip.MustParseAddr("192.0.2.1"))
	c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
	h.must(err)
	t.Cleanup(c.close)
	go func() { _, _ = io.Copy(io.Discard, c.client) }()
	h.tool("tc -n " + h.ns + " qdisc add dev out root tbf rate 20mbit burst 5kb latency 20ms")
	h.must(c.server.SetWriteBuffer(2 << 20))
	_, err = c.server.Write(make([]byte, 1000))
	h.must(err)
	ends = endsOfServer(c)
	h.eventually(20*time.Second, "the flow is known", func() bool { s, ok := f.stats(ends); return ok && s.Acked == s.Next && s.SrttUs != 0 })
	return h, peer, f, c, ends
}

// sendsBehind has the peer lose the next byte of a flow again and again, and sends 50 packets from it on.
func (h *host) sendsBehind(peer *host, f *flows, c pair, ends mptcp.Ends) link.Link {
	h.Helper()
	s, _ := f.stats(ends)
	loss := peer.loses("in", s.Next, 1)
	for range 50 {
		_, err := c.server.Write(make([]byte, 1000))
		h.must(err)
		time.Sleep(time.Millisecond)
	}
	return loss
}

// A flow whose peer lacks its first byte, which is lost again and again, and so all data behind that, sticks until the byte has arrived.
func TestFlowSticks(t *testing.T) {
	h, peer, f, c, ends := sticking(t)
	loss := h.sendsBehind(peer, f, c, ends)
	h.eventually(20*time.Second, "it sticks", func() bool { s, _ := f.stats(ends); return s.StuckAtNs != 0 })
	if e, err := f.read(); err != nil || e != (flowEvent{ends, bpf.FlowStuck}) {
		t.Errorf("%+v, %v: want that %v sticks", e, err, ends)
	}
	x := &exits{flows: f, plan: emptyPlan(t), health: egress.NewHealth(), brownouts: egress.NewBrownouts(), log: io.Discard, journal: newJournal()}
	g, now := mptcp.Group{Subflows: []mptcp.Subflow{{Local: ends.Local, Remote: ends.Remote}}}, time.Now()
	for i, want := range [][]mptcp.Ends{{ends}, nil} { // the second is too soon
		if changed, lost := x.act(egress.Verdict{Stuck: []int{0}}, g, now); changed || !slices.Equal(lost, want) {
			t.Errorf("the verdict, time %d, closes %v, changed %v; want %v alone", i, lost, changed, want)
		}
	}
	x.health = egress.NewHealth()
	x.config = Egress{Exits: []egress.Exit{{Name: "b"}}}
	for range 2 {
		x.brownouts.Look([]egress.WayLoad{{Exit: "b", Client: g.Client, Sent: 100, Resent: 10}}, now)
	}
	if _, lost := x.act(egress.Verdict{Stuck: []int{0}}, g, now); len(lost) > 0 {
		t.Errorf("where another exit loses as well the verdict closes %v", lost)
	}
	h.must(loss.Close())
	h.eventually(20*time.Second, "all has arrived", func() bool { s, _ := f.stats(ends); return s.Acked == s.Next && s.StuckAtNs == 0 && s.FirstAtNs == 0 })
}

// One does not whose connection waits for a byte that another flow was given.
func TestFlowWithoutTheByteSticksNot(t *testing.T) {
	h, peer, f, c, ends := sticking(t)
	s, _ := f.stats(ends)
	other := func() {
		var one bpf.FlowsConnection
		h.must(f.Maps[bpf.FlowsMapPlaitConnections].Lookup(s.Token, &one))
		one.Acked = one.Next + 1<<30
		h.must(f.Maps[bpf.FlowsMapPlaitConnections].Put(s.Token, &one))
	}
	other()
	loss := h.sendsBehind(peer, f, c, ends)
	const long = uint64(300 * time.Millisecond)
	h.eventually(20*time.Second, "the byte is long missing", func() bool { s, _ = f.stats(ends); return s.FirstAtNs != 0 && monotonicNs() > s.FirstAtNs+long })
	if s.DoubtedAtNs != 0 || s.StuckAtNs != 0 {
		t.Errorf("%+v", s)
	}
	h.must(loss.Close())
}

// Nor one of a download, which sends so much behind the byte that to send all that again takes longer than to wait for it.
func TestFlowOfADownloadSticksNot(t *testing.T) {
	h, peer, f, c, ends := sticking(t)
	go func() { _, _ = c.server.Write(make([]byte, 12<<20)) }() // 5 s
	h.eventually(20*time.Second, "data has waited for long", func() bool {
		s, _ := f.stats(ends)
		var one bpf.FlowsConnection
		h.must(f.Maps[bpf.FlowsMapPlaitConnections].Lookup(s.Token, &one))
		return one.BehindAtNs != 0 && monotonicNs() > one.BehindAtNs+uint64(2100*time.Millisecond)
	})
	s, _ := f.stats(ends)
	loss := peer.loses("in", s.Next+200_000, 1500)
	const long = uint64(300 * time.Millisecond)
	h.eventually(20*time.Second, "a packet is long missing", func() bool { s, _ = f.stats(ends); return s.FirstAtNs != 0 && monotonicNs() > s.FirstAtNs+long })
	if s.DoubtedAtNs != 0 || s.StuckAtNs != 0 {
		t.Errorf("%+v", s)
	}
	h.must(loss.Close())
}
