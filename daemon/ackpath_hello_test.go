package daemon

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/ackpath"
)

// A sender answers every hello of a receiver with many flows, all new at once, and hears of each flow before it would forget it.
func TestAckReceiverMany(t *testing.T) {
	const many = 1200
	r, k, receiver, flows, _ := newAckRig(t)
	sender := newAckSender(k, true, t.Logf)
	*flows = nil
	for i := range uint32(many) {
		slow, quick := subflow("10.0.0.1:1000", "127.0.0.1:443", 0, "cubic"), subflow("10.0.1.1:1001", "127.0.0.1:443", 1, "cubic")
		slow.Token, slow.RemoteToken, quick.Token, quick.RemoteToken = i+1, i+1, i+1, i+1
		slow.Local, quick.Local = netip.AddrPortFrom(slow.Local.Addr(), uint16(i+1)), netip.AddrPortFrom(quick.Local.Addr(), uint16(i+1))
		*flows = append(*flows, slow, quick)
	}
	asked := map[ackpath.Name]time.Time{}
	begin, b, every := time.Now(), make([]byte, 2048), askAgain
	for at := begin; at.Before(begin.Add(2 * takenFor)); at = at.Add(every) {
		if at.Sub(begin) > 2*newFor {
			every = ackLookEvery
		}
		r.look(at)
		_ = receiver.SetReadDeadline(time.Now().Add(time.Millisecond)) // what was sent is there
		for {
			n, from, err := receiver.ReadFromUDPAddrPort(b)
			if err != nil {
				break
			}
			h, err := ackpath.ParseHello(b[:n])
			if err != nil {
				t.Fatal(err)
			}
			for key, way := range r.ways {
				if r.sockets[key.helloKey].LocalAddr().(*net.UDPAddr).AddrPort() != from {
					continue
				}
				if key.link == 2 {
					way.Way = ackpath.Way{}
					way.Ask(at.Add(-3*time.Second), h.Nonce)
				}
				if !sender.admits(at, key.source) {
					t.Fatalf("after %v a hello is not answered", at.Sub(begin))
				}
				r.answered(at, key, ackpath.Answer{Nonce: h.Nonce, Fair: true})
			}
			for _, name := range h.Flows {
				if last, ok := asked[name]; ok && at.Sub(last) > takenFor {
					t.Errorf("%v was not asked about for %v", name, at.Sub(last))
				}
				asked[name] = at
			}
		}
	}
	if len(asked) != many {
		t.Errorf("asked about %d of %d flows", len(asked), many)
	}
	for name, last := range asked {
		if begin.Add(2*takenFor).Sub(last) > takenFor {
			t.Errorf("%v was asked about last %v after the beginning", name, last.Sub(begin))
		}
	}
}
