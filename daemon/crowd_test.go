package daemon

import (
	"sync/atomic"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// Two that begin at once and both lose much are a crowd. Those that begin later send two packets at once and not ten, at all that is known and not at half, each its share.
func TestCrowd(t *testing.T) {
	rung.Netns(t)
	var full atomic.Bool
	packets := 0
	s := newSwitching(t, "burst", func(uint32, func()) bool {
		packets++
		return full.Load() && packets%3 != 0
	})
	r := resumingAfter(t, s)
	if p := r.known(); p.Crowd != 0 {
		t.Fatalf("one connection after the other is a crowd of %d", p.Crowd)
	}
	// loses has one after the other lose much beside another, after which one more does by then, until one of them has found that without a timeout.
	loses := func(overran uint64, what string, holds func(p knownPath) bool) {
		for range 10 {
			one := r.again()
			r.knows(func(p *knownPath) { p.Bursting, p.BegunNs, p.OverranNs = 1, uint64(monotonicNs()), overran })
			full.Store(true)
			r.must(send(one.server, 0, aBurst))
			for begun := time.Now(); time.Since(begun) < 2*time.Second && !holds(r.known()); {
				time.Sleep(20 * time.Millisecond)
			}
			full.Store(false)
			one.settles()
			r.eventually(20*time.Second, "its burst is over", func() bool { return r.known().Bursting == 1 })
			if holds(r.known()) {
				return
			}
		}
		t.Fatalf("not with ten connections: %s", what)
	}
	loses(0, "one has lost much", func(p knownPath) bool { return p.OverranNs > 0 })
	if p := r.known(); p.Crowd != 0 {
		t.Fatalf("of two one has lost much, and they are a crowd of %d", p.Crowd)
	}
	loses(uint64(monotonicNs())+uint64(10*time.Second), "two have, and are a crowd", func(p knownPath) bool { return p.Crowd == 2 })
	r.knows(func(p *knownPath) { p.Bursting = 0 })
	s = r.again()
	known := r.knows(func(p *knownPath) {
		p.Crowd, p.CrowdNs, p.HandshakeUs, p.CrowdHandshakeUs = 6, uint64(monotonicNs()), s.handshakeUs(), s.handshakeUs()
	})
	if got := r.sends(s, aBurst); got != known.CapacityBps {
		t.Errorf("of a crowd of six one begins with %d bytes/s, want %d", got, known.CapacityBps)
	}
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

// A crowd is expected for five minutes, and no more after three bursts that were alone, small ones among them; but the end of a connection is none.
func TestCrowdIsForgotten(t *testing.T) {
	r := newResuming(t)
	alike := func() *switching {
		for {
			if s := r.again(); s.handshakeUs() < r.handshakeUs+10_000 && s.handshakeUs()+10_000 > r.handshakeUs {
				return s
			}
		}
	}
	begins := func() (*switching, uint32) {
		s := alike()
		r.must(send(s.server, 0, aTrain/2))
		defer r.over(s)
		return s, s.info(s.server).Snd_cwnd
	}
	r.knows(func(p *knownPath) {
		p.CapacityBps, p.Crowd, p.CrowdNs, p.CrowdHandshakeUs = 0, 5, uint64(monotonicNs())-301e9, r.handshakeUs
	})
	if _, got := begins(); got < 10 {
		t.Errorf("five minutes after a crowd one begins with %d packets", got)
	}
	r.knows(func(p *knownPath) {
		p.CapacityBps, p.CrowdNs, p.CrowdHandshakeUs = 0, uint64(monotonicNs()), 2*r.handshakeUs
	})
	if _, got := begins(); got < 10 {
		t.Errorf("on another way than a crowd's one begins with %d packets", got)
	}
	r.knows(func(p *knownPath) { p.CapacityBps, p.CrowdHandshakeUs, p.Alone = 0, r.handshakeUs, 0 })
	var small *switching
	for n := range 3 {
		var got uint32
		if small, got = begins(); got != 2 {
			t.Errorf("after %d that were alone one begins with %d packets, want 2", n, got)
		}
		r.must(small.server.CloseWrite())
		time.Sleep(10 * time.Millisecond)
		if p := r.known(); p.Bursting != 0 || p.Alone != uint32(n+1) {
			t.Errorf("after the end of number %d %d bursts are on the way, and %d were alone", n+1, p.Bursting, p.Alone)
		}
	}
	if _, got := begins(); got < 10 {
		t.Errorf("after three that were alone one begins with %d packets", got)
	}
}

// The small window of a crowd is for the beginning: a connection of small bursts has ten packets when the crowd is over.
func TestCrowdLeavesNoWindow(t *testing.T) {
	r := newResuming(t)
	r.knows(func(p *knownPath) {
		p.CapacityBps, p.Crowd, p.CrowdNs, p.CrowdHandshakeUs = 0, 6, uint64(monotonicNs()), r.handshakeUs
	})
	s := r.again()
	for range 12 {
		r.must(send(s.server, 0, 1000))
		r.over(s)
	}
	r.must(send(s.server, 0, aBurst))
	if got := s.info(s.server).Snd_cwnd; got < 10 {
		t.Errorf("after 12 bursts of a packet it begins the next one with %d", got)
	}
}
