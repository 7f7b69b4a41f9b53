package daemon

import (
	"sync/atomic"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// Two that begin at once and lose much are a crowd. Those that begin later send two packets at once and not ten, at all that is known and not at half, each its share.
func TestCrowd(t *testing.T) {
	rung.Netns(t)
	var full atomic.Bool
	packets := 0
	s := newSwitching(t, "burst", func(uint32, func()) bool {
		packets++
		return full.Load() && packets%2 == 0
	})
	r := resumingAfter(t, s)
	if p := r.known(); p.Crowd != 0 {
		t.Fatalf("one connection after the other is a crowd of %d", p.Crowd)
	}
	two := []*switching{r.again(), r.again()}
	full.Store(true)
	for _, s := range two {
		r.must(send(s.server, 0, aBurst))
	}
	r.eventually(20*time.Second, "they are known as a crowd", func() bool { return r.known().Crowd == 2 })
	full.Store(false)
	for _, s := range two {
		r.over(s)
	}
	r.knows(func(p *knownPath) { p.Crowd, p.CrowdNs = 6, uint64(monotonicNs()) })
	s = r.resumes("of a crowd of six", aBurst, r.known().CapacityBps)
	if i := s.info(s.server); i.Snd_cwnd != 2 || i.Unacked > 2 {
		t.Errorf("of a crowd of six one begins with %d packets in a window of %d, want 2", i.Unacked, i.Snd_cwnd)
	}
	other := r.again()
	if got, want := r.sends(other, aBurst), r.known().CapacityBps/2; got != want {
		t.Errorf("the next one begins with %d bytes/s, want %d", got, want)
	}
	r.over(s)
	r.over(other)
}

// A crowd is expected for five minutes, and no more after three bursts that were alone, small ones among them.
func TestCrowdIsForgotten(t *testing.T) {
	r := newResuming(t)
	begins := func() uint32 {
		s := r.again()
		r.must(send(s.server, 0, aTrain/2))
		defer r.over(s)
		return s.info(s.server).Snd_cwnd
	}
	r.knows(func(p *knownPath) { p.Crowd, p.CrowdNs = 5, uint64(monotonicNs())-301e9 })
	if got := begins(); got < 10 {
		t.Errorf("five minutes after a crowd one begins with %d packets", got)
	}
	r.knows(func(p *knownPath) { p.CrowdNs, p.Alone = uint64(monotonicNs()), 0 })
	for n := range 3 {
		if got := begins(); got != 2 {
			t.Errorf("after %d that were alone one begins with %d packets, want 2", n, got)
		}
	}
	if got := begins(); got < 10 {
		t.Errorf("after three that were alone one begins with %d packets", got)
	}
}
