package daemon

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	before := far.counter("TcpExtTCPDSACKRecvSegs")
	for range times {
		hold.Store(true)
		send()
		time.Sleep(1500 * time.Millisecond)
	}
	_, l := a.counted()
	if n := far.counter("TcpExtTCPDSACKRecvSegs") - before; n != times || l.Used < 2*times {
		t.Errorf("%d segments came twice, and the sender heard of %d; %+v", times, n, l)
	}
}
