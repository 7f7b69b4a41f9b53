package daemon

import (
	"sync/atomic"
	"testing"
	"time"
)

// settles waits until all is acknowledged, and the ACK is processed.
func (s *switching) settles() {
	s.Helper()
	s.eventually(20*time.Second, "all is acknowledged", func() bool { return s.info(s.server).Unacked == 0 })
}

// What a timeout finds lost has not been carried by the path.
func TestTimeoutIsNotCarried(t *testing.T) {
	const flight = 40
	var pass atomic.Int64 // packets to go that are not lost
	pass.Store(1 << 30)
	s := newSwitching(t, "reno", func(uint32, func()) bool { return pass.Add(-1) < 0 })
	s.must(send(s.server, 0, 400<<10))
	s.settles()
	for range 20 { // after 8 to 16 bursts what was carried is forgotten
		s.must(send(s.server, 0, 1000))
		s.settles()
	}
	carried := func() uint64 {
		st := s.state()
		return max(st.get("plait_sock", "carried"), st.get("plait_sock", "carried_past"))
	}
	if before := carried(); before >= flight {
		t.Fatalf("%d packets are carried already", before)
	}
	pass.Store(1) // whose ACK shows how many are on the way behind it
	s.must(send(s.server, 0, flight*1448))
	s.becomes(caLoss)
	pass.Store(1 << 30)
	s.settles()
	if after := carried(); after >= flight-1 {
		t.Errorf("after a timeout that lost all of them but one %d packets count as carried", after)
	}
}
