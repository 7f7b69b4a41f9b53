package daemon

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"

	"plait.dev/plait/internal/rung"
)

// learned is what burst knows of the socket's path: the capacity and the first train of the last burst (bpf/cc/burst.h).
func learned(st *state) []byte {
	st.Helper()
	private, _ := fieldOffset(st.spec.Maps["plait_socks"].Value.(*btf.Struct).Members, "private")
	return st.all[private.Bytes():][:16]
}

// While a burst is on the way the peer sends too, and what it says then acknowledges nothing new. A train that promises too much is outvoted by the one before all the same.
func TestTrainCountsOnce(t *testing.T) {
	r := newResuming(t)
	s := r.again()
	r.learns(s)
	order := binary.LittleEndian
	var speaks, ended atomic.Bool
	defer ended.Store(true)
	go func() {
		for !ended.Load() {
			if time.Sleep(200 * time.Microsecond); speaks.Load() {
				_, _ = s.client.Write([]byte{0})
			}
		}
	}()
	for seen := 0; seen < 5; {
		const low = 1 << 18
		st := s.state()
		copy(learned(st), order.AppendUint64(order.AppendUint64(nil, low), 1))
		st.put()
		speaks.Store(true)
		r.sends(s, aBurst)
		r.over(s)
		speaks.Store(false)
		after := learned(s.state())
		capacity, train := order.Uint64(after), order.Uint64(after[8:])
		if train <= low {
			continue // the host was busy: this train does not promise too much
		}
		seen++
		if capacity != low {
			t.Fatalf("one train of %d bytes/s, and the capacity goes from %d to %d", train, low, capacity)
		}
	}
}

// Whose peer is gone counts no more among those with a burst on the way, and what it is given to send meanwhile does not go.
func TestGoneLeavesPath(t *testing.T) {
	rung.Netns(t)
	var gone atomic.Bool
	r := resumingAfter(t, newSwitching(t, "burst", func(uint32, func()) bool { return gone.Load() }))
	s := r.again()
	r.learns(s)
	gone.Store(true)
	r.sends(s, aBurst)
	s.eventually(30*time.Second, "three timeouts", func() bool { return s.info(s.server).Retransmits >= 3 })
	go func() { _ = send(s.server, 0, aBurst) }()
	s.eventually(10*time.Second, "there is more to send", func() bool { return s.info(s.server).Notsent_bytes > 30_000 })
	if n, i := r.known().Bursting, s.info(s.server); n != 0 || i.Snd_cwnd > 1 {
		t.Errorf("after three timeouts %d bursts are on the way, and %d packets may be", n, i.Snd_cwnd)
	}
}
