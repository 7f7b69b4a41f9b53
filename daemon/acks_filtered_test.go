package daemon

import (
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
)

// Whether the socket has a copy shows only in what that acknowledges: of those that acknowledge nothing new a filter takes unseen, and they are not timed. Run() gives the socket none.
func TestACKCopiesFilteredUnseen(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	client, server, quick := netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddr("203.0.113.7")
	key := packet{from: server, to: client}.key()
	una, clock := h.established(t, client, server)
	flows := c.Maps[bpf.AcksMapPlaitAckFlows]
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: quick.As16(), Token: 77, Id: 3, SenderId: 1}, key))
	h.must(flows.Put(key, &bpf.AckLead{}))
	run := func(packet []byte) {
		h.in(func() error {
			_, err := c.Programs[bpf.AcksProgPlaitAckHeard].Run(&ebpf.RunOptions{Data: onEthernet(packet), DataOut: make([]byte, 400)})
			return err
		})
	}
	sack := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{1, 1, 5, 10}, una+1000), una+2000)
	run(tcpACK(client, server, una, clock))
	for _, step := range []struct {
		what    string
		ack, ms uint32
		options []byte
		leads   uint32
	}{
		{"a duplicate ACK that says what is missing", 0, 1, sack, 0},
		{"a window update", 0, 2, nil, 0},
		{"an ACK of more", 1000, 3, nil, 1},
		{"a duplicate of that", 1000, 4, sack, 1},
	} {
		ack := tcpACK(client, server, una+step.ack, clock+step.ms, step.options...)
		run(tunnel(quick, server.Addr(), testAckPort, 3, 77, ack))
		time.Sleep(2 * time.Millisecond)
		run(ack)
		var l bpf.AckLead
		h.must(flows.Lookup(key, &l))
		if l.Used == 0 || l.Leads != step.leads || l.LeadUs != 0 {
			t.Errorf("%s, whose copy was filtered: %+v, want %d leads, of nothing", step.what, l, step.leads)
		}
	}
}

// Where a filter took copies that the socket was given, those that are only timed are no lead, or it would be given them again; it is tried again after a while.
func TestACKCopiesFilteredAreNotTimed(t *testing.T) {
	h, far := newSlowLink(t, 20*time.Millisecond, 0, nil)
	far.patient("10.9.0.1", "slow")
	a := newAckPair(h, far, "44")
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	filter := func(on string) {
		far.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/quick/rp_filter", []byte(on), 0) })
	}
	natives, flows := a.sender.Maps[bpf.AcksMapPlaitAckNatives], a.sender.Maps[bpf.AcksMapPlaitAckFlows]
	write := func(what string, holds func(l bpf.AckLead) bool) (l bpf.AckLead) {
		h.eventually(20*time.Second, what, func() bool {
			_, err := a.served.Write(make([]byte, 1000))
			h.must(err)
			time.Sleep(10 * time.Millisecond)
			_, l = a.counted()
			return holds(l)
		})
		return l
	}
	filter("1")
	used := write("used copies are found filtered", func(l bpf.AckLead) bool { return l.Leads >= 3 && l.SampledAtNs == 0 })
	h.must(natives.Put(uint32(a.socket()), bpf.AckNative{Closed: 1}))
	timed := write("copies are timed", func(l bpf.AckLead) bool { return l.Copies >= used.Copies+50 })
	if timed.LeadUs != 0 || timed.Leads > used.Leads+2 { // of one or two that were on their way
		t.Errorf("leads of timed copies, where a filter takes those that are used: %+v, before %+v", timed, used)
	}
	timed.FilteredAtNs, timed.SampledAtNs = uint64(monotonicNs())-uint64(31*time.Second), 0
	h.must(flows.Put(a.here, &timed))
	write("copies are timed again, after a while", func(l bpf.AckLead) bool { return l.Leads >= timed.Leads+3 && l.LeadUs > 0 })
	filter("0")
	h.must(natives.Put(uint32(a.socket()), bpf.AckNative{}))
	write("the filter has gone, and a used copy tells so", func(l bpf.AckLead) bool { return l.FilteredAtNs == 0 })
}
