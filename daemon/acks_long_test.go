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
