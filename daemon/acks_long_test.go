package daemon

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
)

// copiedFlow is a connection whose copies come from quick. Run() gives its socket none.
type copiedFlow struct {
	*host
	program        *ebpf.Program
	flows          *ebpf.Map
	client, server netip.AddrPort
	quick          netip.Addr
	una, clock     uint32
	lead           bpf.AckLead // as it is in flows
}

func newCopiedFlow(t *testing.T) *copiedFlow {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	f := &copiedFlow{host: h, program: c.Programs[bpf.AcksProgPlaitAckHeard], flows: c.Maps[bpf.AcksMapPlaitAckFlows],
		client: netip.MustParseAddrPort("198.51.100.7:5000"), server: netip.MustParseAddrPort("192.0.2.1:443"), quick: netip.MustParseAddr("203.0.113.7")}
	f.una, f.clock = h.established(t, f.client, f.server)
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: f.quick.As16(), Token: 77, Id: 3, SenderId: 1}, f.key()))
	f.put()
	return f
}

func (f *copiedFlow) key() bpf.FlowKey { return packet{from: f.server, to: f.client}.key() }

func (f *copiedFlow) put() { f.Helper(); f.must(f.flows.Put(f.key(), &f.lead)) }

// ack is one of so many bytes more, with a timestamp so much later.
func (f *copiedFlow) ack(bytes, later int32, options ...byte) []byte {
	return tcpACK(f.client, f.server, f.una+uint32(bytes), f.clock+uint32(later), options...)
}

func (f *copiedFlow) copied(ack []byte) []byte {
	return tunnel(f.quick, f.server.Addr(), testAckPort, 3, 77, ack)
}

func (f *copiedFlow) heard(packet []byte) {
	f.Helper()
	f.in(func() error {
		_, err := f.program.Run(&ebpf.RunOptions{Data: onEthernet(packet), DataOut: make([]byte, 400)})
		return err
	})
	f.must(f.flows.Lookup(f.key(), &f.lead))
}

// While copies are closed out a connection goes on for gigabytes. The first one that is let in again says something new, as ever: its twin will not.
func TestACKCopyAfterGigabytes(t *testing.T) {
	f := newCopiedFlow(t)
	f.lead = bpf.AckLead{CopiedAck: f.una - 4000, CopiedTsval: f.clock - 2, TwinAwaited: 1}
	f.put()
	f.heard(f.ack(-3000, -1))
	f.lead.CopiedAck -= 0x90000000
	f.put()
	f.heard(f.copied(f.ack(-2000, 0)))
	if l := f.lead; l.Used != 1 || l.TwinAwaited == 0 || l.CopiedAck != f.una-2000 {
		t.Errorf("the twin of a copy that tells of 1000 bytes is not awaited: %+v", l)
	}
}

// Copies whose lead is never known are given to the socket for some seconds alone, and no signal nor the first lead opens the way for them again: nobody corrects for them.
func TestACKCopiesOfUnknownLead(t *testing.T) {
	f := newCopiedFlow(t)
	copied := func(what string, ack []byte, used uint64) {
		t.Helper()
		if f.heard(f.copied(ack)); f.lead.Used != used {
			t.Errorf("%s: %d copies are used, want %d; %+v", what, f.lead.Used, used, f.lead)
		}
	}
	ack := func(i int32, options ...byte) []byte { return f.ack(1000*i, i, options...) }
	copied("the first one, in slow start", ack(1), 1)
	if f.lead.OpenedS == 0 {
		t.Fatalf("copies are not told to be in use: %+v", f.lead)
	}
	f.lead.OpenedS -= 10
	f.put()
	copied("10 s without a lead", ack(2), 2)
	f.lead.OpenedS -= 10
	f.lead.SampledAtNs = 0
	f.put()
	copied("20 s without a lead", ack(3), 2)
	f.heard(ack(3))
	if f.lead.Leads != 1 {
		t.Errorf("the first lead is not measured: %+v", f.lead)
	}
	copied("with the first lead", ack(4), 2)
	copied("a signal", ack(5, 30, 4, 0x51, 1), 3) // MP_PRIO
	copied("after a signal", ack(6), 3)
}
