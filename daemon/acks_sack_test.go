package daemon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// A segment that comes so late that it was sent again arrives twice. The sender hears of that once, though the ACK that says so comes twice and moves nothing: by the number of
// such segments the kernel judges its repairs.
func TestACKTwinTellsNothingTwice(t *testing.T) {
	h := newNamespace(t)
	far := h.second("-s")
	near, distant := h.device(h.ns, "slow", unix.IFF_TUN), h.device(far.ns, "slow", unix.IFF_TUN)
	var lose, hold atomic.Bool
	data := []byte("a segment")
	go slowly(near, distant, 30*time.Millisecond, nil)
	go slowly(distant, near, 0, func(b []byte) bool {
		switch {
		case !bytes.Contains(b, data):
			return false
		case lose.Swap(false):
			return true
		case hold.Swap(false):
			late := bytes.Clone(b)
			time.AfterFunc(time.Second, func() { _, _ = near.Write(late) }) // the timer is at 0.2 s
			return true
		}
		return false
	})
	h.ip(fmt.Sprintf("-n %s link add quick type veth peer name quick netns %s", h.ns, far.ns))
	a := newAckPair(h, far, "44")
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	send := func() {
		_, err := a.served.Write(data)
		h.must(err)
		h.eventually(10*time.Second, "the segment is acknowledged", func() bool {
			unacked, err := unix.IoctlGetInt(a.socket(), unix.SIOCOUTQ)
			h.must(err)
			return unacked == 0
		})
	}
	send()
	const times = 3
	for range times { // without as many repairs the kernel takes what came twice for the network's doing
		lose.Store(true)
		send()
	}
	heard := 0
	for range 5 { // a busy machine is so late now and then that a segment is sent once more
		before, sent := far.counter("TcpExtTCPDSACKRecvSegs"), far.counter("TcpRetransSegs")
		for range times {
			hold.Store(true)
			send()
			time.Sleep(1500 * time.Millisecond)
		}
		heard = far.counter("TcpExtTCPDSACKRecvSegs") - before
		if far.counter("TcpRetransSegs")-sent == times && heard >= times {
			break
		}
	}
	if _, l := a.counted(); heard != times || l.Used < 2*times {
		t.Errorf("%d segments came twice, and the sender heard of %d; %+v", times, heard, l)
	}
}

// An ACK whose copy was lost comes by itself and tells what it says is missing, though copies of others have been there before. What came twice was told of by a copy.
func TestACKWithoutCopyTells(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	const next, drop = 0xffffffff, 2
	client, server, quick := netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddr("203.0.113.7")
	key := packet{from: server, to: client}.key()
	una, clock := h.established(t, client, server)
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: quick.As16(), Token: 77, Id: 3, SenderId: 1}, key))
	h.must(c.Maps[bpf.AcksMapPlaitAckFlows].Put(key, &bpf.AckLead{}))
	sack := func(ms, left uint32) []byte { // una is missing, a segment of 1000 bytes has come
		o := binary.BigEndian.AppendUint32([]byte{1, 1, 5, 10}, una+left)
		return tcpACK(client, server, una, clock+ms, binary.BigEndian.AppendUint32(o, una+left+1000)...)
	}
	twice := func(packet []byte) []byte { return tunnel(quick, server.Addr(), testAckPort, 3, 77, packet) }
	const before = ^uint32(999) // 1000 bytes that were acknowledged
	for _, step := range []struct {
		what   string
		packet []byte
		want   uint32
	}{
		{"an ACK that says nothing else", tcpACK(client, server, una, clock), next},
		{"the copy of the second ACK", twice(sack(2, 1000)), next},
		{"the first ACK, whose copy was lost", sack(1, 5000), next},
		{"another ACK of the same moment, whose copy was lost", sack(2, 2000), next},
		{"the copy of an ACK of what came twice", twice(sack(3, before)), next},
		{"that ACK", sack(3, before), drop},
		{"another one of what came twice", sack(4, before), next},
	} {
		var verdict uint32
		h.in(func() (err error) {
			verdict, err = c.Programs[bpf.AcksProgPlaitAckHeard].Run(&ebpf.RunOptions{Data: onEthernet(step.packet), DataOut: make([]byte, 400)})
			return err
		})
		if verdict != step.want {
			t.Errorf("%s: verdict %d, want %d", step.what, int32(verdict), int32(step.want))
		}
	}
}

// An ACK that says what is missing is no twin of one that does not, though it acknowledges the same in the same moment: where both that one by itself and the copy of this one were lost
// it is all there is.
func TestACKOfLossIsNoTwin(t *testing.T) {
	h := newNamespace(t)
	c := loadAcks(h, bpf.AcksProgPlaitAckHeard)
	const next, drop = 0xffffffff, 2
	client, server, quick := netip.MustParseAddrPort("198.51.100.7:5000"), netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddr("203.0.113.7")
	key := packet{from: server, to: client}.key()
	una, clock := h.established(t, client, server)
	h.must(c.Maps[bpf.AcksMapPlaitAckNames].Put(bpf.AckName{From: quick.As16(), Token: 77, Id: 3, SenderId: 1}, key))
	plain := tcpACK(client, server, una, clock)
	o := binary.BigEndian.AppendUint32([]byte{1, 1, 5, 10}, una+1000)
	sack := tcpACK(client, server, una, clock, binary.BigEndian.AppendUint32(o, una+2000)...)
	for _, c2 := range []struct {
		name                string
		copied, other, twin []byte
	}{{"the copy says nothing else", plain, sack, plain}, {"the copy says what is missing", sack, plain, sack}} {
		h.must(c.Maps[bpf.AcksMapPlaitAckFlows].Put(key, &bpf.AckLead{}))
		for _, step := range []struct {
			what   string
			packet []byte
			want   uint32
		}{
			{"the copy", tunnel(quick, server.Addr(), testAckPort, 3, 77, c2.copied), next},
			{"another ACK", c2.other, next},
			{"the twin", c2.twin, drop},
		} {
			var verdict uint32
			h.in(func() (err error) {
				verdict, err = c.Programs[bpf.AcksProgPlaitAckHeard].Run(&ebpf.RunOptions{Data: onEthernet(step.packet), DataOut: make([]byte, 400)})
				return err
			})
			if verdict != step.want {
				t.Errorf("%s, %s: verdict %d, want %d", c2.name, step.what, int32(verdict), int32(step.want))
			}
		}
	}
}
