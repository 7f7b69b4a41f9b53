package daemon

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shiftClock adds to one of a segment's timestamps, as a firewall does that hides how long hosts are up; at is 2 for TSval, 6 for TSecr.
func shiftClock(b []byte, at int, by uint32) {
	order := binary.BigEndian
	if b[0] != 0x45 || b[9] != protocolTCP {
		return
	}
	tcp := b[20:order.Uint16(b[2:])]
	for o := tcp[20 : tcp[12]>>4*4]; len(o) > 1 && o[0] != 0; {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		if o[0] == 8 {
			if stamp := order.Uint32(o[at:]); at == 2 || stamp != 0 {
				order.PutUint32(o[at:], stamp+by)
			}
			break
		}
		o = o[o[1]:]
	}
	order.PutUint16(tcp[16:], 0)
	p := append(append([]byte{}, b[12:20]...), 0, protocolTCP, byte(len(tcp)>>8), byte(len(tcp)))
	order.PutUint16(tcp[16:], ^sum(p, append(append([]byte{}, tcp...), make([]byte, len(tcp)%2)...)))
}

// Where something on the slow way changes timestamps, copies have others than the socket knows. It is not given them: it would take everything that comes natively for old.
func TestACKCopiesOfAnotherClock(t *testing.T) {
	h := newNamespace(t)
	far := h.second("-s")
	near, distant := h.device(h.ns, "slow", unix.IFF_TUN), h.device(far.ns, "slow", unix.IFF_TUN)
	var clock uint32
	clock -= 1_000_000_000 // ms: to the socket copies are of the future
	go slowly(near, distant, 20*time.Millisecond, func(b []byte) bool { shiftClock(b, 2, clock); return false })
	go slowly(distant, near, 0, func(b []byte) bool { shiftClock(b, 6, -clock); return false })
	h.ip(fmt.Sprintf("-n %s link add quick type veth peer name quick netns %s", h.ns, far.ns))
	a := newAckPair(h, far, "44")
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	request := make([]byte, 100)
	for range 5 {
		for range 10 {
			_, err := a.served.Write(make([]byte, 1000))
			h.must(err)
			time.Sleep(time.Millisecond)
		}
		_, err := a.conn.Write(request)
		h.must(err)
		h.must(a.served.SetReadDeadline(time.Now().Add(5 * time.Second)))
		if _, err := io.ReadFull(a.served, request); err != nil {
			r, l := a.counted()
			t.Fatalf("a request: %v; %d copies were sent, %+v", err, r.Copies, l)
		}
	}
	if r, l := a.counted(); r.Copies == 0 || l.Copies == 0 || l.Used > 0 {
		t.Errorf("%d copies were sent, %+v; want some, and none for the socket", r.Copies, l)
	}
}
