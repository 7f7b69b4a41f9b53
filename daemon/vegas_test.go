package daemon

import (
	"testing"
	"time"
)

// Where round trips were forgotten in the middle of one (algorithm_forget_rtt, when copies of ACKs are let in), its least may be less than the base that is known since. That is no queue,
// and no reason to end slow start.
func TestVegasRoundBelowBase(t *testing.T) {
	s := newSwitching(t, "vegas", func(uint32, func()) bool { return false })
	s.patient("10.3.0.2", "wire")
	var ended []uint32
	for range 5 { // where the relay of a busy machine is late for a whole round, slow start ends rightly
		threshold := s.roundBelowBase()
		if threshold >= infinite {
			return
		}
		ended = append(ended, threshold)
		s.reset()
		s.anew()
	}
	t.Errorf("slow start ended at %d packets on a path without a queue", ended)
}

const infinite = 0x7fffffff // a threshold (TCP_INFINITE_SSTHRESH)

// roundBelowBase is the threshold after a round in slow start whose least round trip is less than the base.
func (s *switching) roundBelowBase() uint32 {
	s.Helper()
	const samples, before = 3, 150_000
	st := s.state()
	now := func(name string) uint64 {
		st.fd(func(key uint32) error { return s.kernel.Maps["plait_socks"].Lookup(key, st.all) })
		return st.get("vegas", name)
	}
	server := s.server
	go func() { _ = send(server, 0, 1<<20) }()
	s.eventually(10*time.Second, "a round trip with samples of which the ACKs are in", func() bool {
		n := now("samples")
		time.Sleep(30 * time.Millisecond)
		return n >= samples && now("samples") == n
	})
	end := now("round_end")
	st.set("vegas", "rtt_us", before)
	s.eventually(10*time.Second, "the round is over", func() bool { return now("round_end") != end })
	return s.info(s.server).Snd_ssthresh
}
