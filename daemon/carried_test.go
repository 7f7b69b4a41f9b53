package daemon

import (
	"io"
	"math"
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

// While the peer has no room nothing arrives, which says nothing of how fast a burst does.
func TestBurstAcrossClosedWindow(t *testing.T) {
	s := newSwitching(t, "burst", func(uint32, func()) bool { return false })
	for range 4 {
		s.must(send(s.server, 0, 64<<10))
		s.settles()
	}
	s.must(s.client.SetReadDeadline(time.Now()))
	time.Sleep(50 * time.Millisecond) // until its reader has gone
	go func() { _ = send(s.server, 0, 32<<20) }()
	s.eventually(20*time.Second, "nothing is sent for 2 s", func() bool { return s.info(s.server).Last_data_sent > 2000 })
	closed := s.info(s.server)
	opened := uint64(monotonicNs()) / 1000
	s.must(s.client.SetReadDeadline(time.Time{}))
	go func() { _, _ = io.Copy(io.Discard, s.client) }()
	var first uint64
	s.eventually(10*time.Second, "a megabyte more is acknowledged, and the window has room", func() bool {
		first = s.state().get("plait_sock", "ack_us")
		return first > 0 && s.info(s.server).Bytes_acked > closed.Bytes_acked+1<<20
	})
	if first < opened {
		t.Errorf("with a window of %d bytes it was closed for 2 s, and the burst's arrival counts from %d ms before it opened", closed.Snd_wnd, (opened-first)/1000)
	}
}

// Who comes back in the middle of a recovery knows of it what the kernel does, and not what the one before was like.
func TestComesBackInRecovery(t *testing.T) {
	const victim, stale = 60, 100_000
	packets := 0
	lost := make(chan bool, 1)
	s := newSwitching(t, "reno", func(uint32, func()) bool {
		if packets++; packets == victim {
			lost <- true
		}
		return packets == victim
	})
	s.state().set("plait_sock", "prr_delivered", stale)
	s.choose(s.server, systemDefault)
	go func() { _ = send(s.server, 0, 8<<20) }()
	<-lost
	s.becomes(caRecovery)
	s.choose(s.server, "plait")
	before := s.info(s.server)
	s.eventually(10*time.Second, "an ACK comes", func() bool {
		return s.info(s.server).Sacked > before.Sacked || s.info(s.server).Bytes_acked > before.Bytes_acked
	})
	after := s.info(s.server)
	if n := s.state().get("plait_sock", "prr_delivered"); n >= stale || after.Snd_cwnd > before.Snd_cwnd+before.Snd_ssthresh {
		t.Errorf("%d packets count as delivered in this recovery; the window was %d segments, and is %d", n, before.Snd_cwnd, after.Snd_cwnd)
	}
}

// A receiver holds the ACK of a single segment back for 40 ms where those behind it are lost. That is no queue at the loss.
func TestACKHeldBack(t *testing.T) {
	var pass atomic.Int64 // packets to go that are not lost
	pass.Store(1 << 30)
	s := newSwitching(t, "cubic", func(uint32, func()) bool { return pass.Add(-1) < 0 })
	before, after := uint64(math.MaxUint64), uint64(math.MaxUint64) // the least ones: a busy machine is late with some
	for try := 1; ; try++ {
		for range 20 { // after 16 segments the receiver no longer answers each at once
			s.must(send(s.server, 0, 2*1448))
			s.settles()
		}
		before = min(before, s.state().get("plait_sock", "last_rtt_us"))
		pass.Store(1)
		s.must(send(s.server, 0, 4*1448))
		s.becomes(caLoss)
		after = min(after, s.state().get("plait_sock", "last_rtt_us"))
		pass.Store(1 << 30)
		s.settles()
		if after <= before+30_000 {
			return
		}
		if try == 5 {
			t.Fatalf("of %d connections, a round trip took %d us before the loss, and %d at it", try, before, after)
		}
		s.reset()
		s.anew()
	}
}

// Where each segment is acknowledged by itself, a path that has become longer is no ACK held back for ever: a loss would be said to have met a queue shorter than none.
func TestLongerPathWithSingleSegments(t *testing.T) {
	var longer atomic.Bool
	s := newSwitching(t, "cubic", func(_ uint32, late func()) bool {
		if longer.Load() {
			late()
		}
		return longer.Load()
	})
	sends := func(n int) {
		for range n {
			s.must(send(s.server, 0, 1000))
			s.settles()
		}
	}
	sends(4)
	longer.Store(true)
	sends(16) // after which the least round trip of before is forgotten
	var last, least uint64
	for range 24 {
		sends(1)
		st := s.state()
		last, least = st.get("plait_sock", "last_rtt_us"), st.get("plait_sock", "min_rtt_us")
		if past := st.get("plait_sock", "min_rtt_past_us"); least == 0 || (past > 0 && past < least) {
			least = past
		}
		if last >= least {
			return
		}
	}
	t.Errorf("the last round trip counts as one of %d us, the least as one of %d", last, least)
}
