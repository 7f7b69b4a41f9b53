package daemon

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
)

// While copies are closed out a connection goes on for gigabytes. The first one that is let in again says something new, as ever: its twin will not.
func TestACKCopyAfterGigabytes(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	client, server := netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("192.0.2.1:443")
	quick := netip.MustParseAddr("203.0.113.7")
	una, clock := h.established(t, client, server)
	key := packet{from: server, to: client}.key()
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: quick.As16(), Token: 77, Id: 3, SenderId: 1}, key))
	flows := c.Maps[bpf.AcksMapPlaitAckFlows]
	l := bpf.AckLead{CopiedAck: una - 4000, CopiedTsval: clock - 2, TwinAwaited: 1}
	h.must(flows.Put(key, &l))
	heard := func(packet []byte) {
		t.Helper()
		h.in(func() error {
			_, err := c.Programs[bpf.AcksProgPlaitAckHeard].Run(&ebpf.RunOptions{Data: onEthernet(packet), DataOut: make([]byte, 400)})
			return err
		})
		h.must(flows.Lookup(key, &l))
	}
	heard(tcpACK(client, server, una-3000, clock-1))
	l.CopiedAck -= 0x90000000
	h.must(flows.Put(key, &l))
	heard(tunnel(quick, server.Addr(), testAckPort, 3, 77, tcpACK(client, server, una-2000, clock)))
	if l.Used != 1 || l.TwinAwaited == 0 || l.CopiedAck != una-2000 {
		t.Errorf("the twin of a copy that tells of 1000 bytes is not awaited: %+v", l)
	}
}

// Copies whose lead is never known are given to the socket for some seconds alone, and no signal nor the first lead opens the way for them again: nobody corrects for them.
func TestACKCopiesOfUnknownLead(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	client, server := netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("192.0.2.1:443")
	quick := netip.MustParseAddr("203.0.113.7")
	una, clock := h.established(t, client, server)
	key := packet{from: server, to: client}.key()
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: quick.As16(), Token: 77, Id: 3, SenderId: 1}, key))
	flows := c.Maps[bpf.AcksMapPlaitAckFlows]
	var l bpf.AckLead
	h.must(flows.Put(key, &l))
	heard := func(packet []byte) {
		t.Helper()
		h.in(func() error {
			_, err := c.Programs[bpf.AcksProgPlaitAckHeard].Run(&ebpf.RunOptions{Data: onEthernet(packet), DataOut: make([]byte, 400)})
			return err
		})
		h.must(flows.Lookup(key, &l))
	}
	copied := func(what string, ack []byte, used uint64) {
		t.Helper()
		heard(tunnel(quick, server.Addr(), testAckPort, 3, 77, ack))
		if l.Used != used {
			t.Errorf("%s: %d copies are used, want %d; %+v", what, l.Used, used, l)
		}
	}
	ack := func(i uint32, options ...byte) []byte { return tcpACK(client, server, una+1000*i, clock+i, options...) }
	copied("the first one, in slow start", ack(1), 1)
	if l.OpenedS == 0 {
		t.Fatalf("copies are not told to be in use: %+v", l)
	}
	l.OpenedS -= 10
	h.must(flows.Put(key, &l))
	copied("10 s without a lead", ack(2), 2)
	l.OpenedS -= 10
	l.SampledAtNs = 0
	h.must(flows.Put(key, &l))
	copied("20 s without a lead", ack(3), 2)
	heard(ack(3))
	if l.Leads != 1 {
		t.Errorf("the first lead is not measured: %+v", l)
	}
	copied("with the first lead", ack(4), 2)
	copied("a signal", ack(5, 30, 4, 0x51, 1), 3) // MP_PRIO
	copied("after a signal", ack(6), 3)
}
