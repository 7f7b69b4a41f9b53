package daemon

import (
	"testing"
	"time"
)

// Where round trips were forgotten in the middle of one (algorithm_forget_rtt, when copies of ACKs are let in), its least may be less than the base that is known since. That is no queue,
// and no reason to end slow start.
func TestVegasRoundBelowBase(t *testing.T) {
	const infinite, samples, before = 0x7fffffff, 3, 150_000
	s := newSwitching(t, "vegas", func(uint32, func()) bool { return false })
	st := s.state()
	now := func(name string) uint64 {
		st.fd(func(key uint32) error { return s.kernel.Maps["plait_socks"].Lookup(key, st.all) })
		return st.get("vegas", name)
	}
	go func() { _ = send(s.server, 0, 1<<20) }()
	s.eventually(10*time.Second, "a round trip with samples of which the ACKs are in", func() bool {
		n := now("samples")
		time.Sleep(30 * time.Millisecond)
		return n >= samples && now("samples") == n
	})
	end := now("round_end")
	st.set("vegas", "rtt_us", before)
	s.eventually(10*time.Second, "the round is over", func() bool { return now("round_end") != end })
	if after := s.info(s.server).Snd_ssthresh; after < infinite {
		t.Errorf("slow start ended at %d packets on a path without a queue", after)
	}
}
