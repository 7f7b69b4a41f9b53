package daemon

import (
	"encoding/binary"
	"net/netip"
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
