package daemon

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/signals"
)

// stepsBack loses half of the first ten packets of a burst, of whose path nothing is known. lose has the next packet lost that is sent for the first time.
func stepsBack(t *testing.T) (s *switching, lose func()) {
	rung.Netns(t)
	var next atomic.Bool
	var last uint32
	packets := 0
	s = newSwitching(t, "burst", func(sequence uint32, _ func()) bool {
		first := packets == 0 || int32(sequence-last) > 0
		if first {
			last = sequence
			packets++
		}
		return first && (packets >= 4 && packets <= 8 || next.CompareAndSwap(true, false))
	})
	s.must(send(s.server, 0, 10*1448))
	s.becomes(caRecovery)
	return s, func() { next.Store(true) }
}

// What is lost of the first packets goes again one after the other, also where a timer finds it: two are selectively acknowledged, which is no sign of a loss by itself.
func TestStepsBack(t *testing.T) {
	s, _ := stepsBack(t)
	if i := s.info(s.server); i.Snd_cwnd > i.Snd_ssthresh+1 {
		t.Errorf("in the recovery %d packets may be on the way, want %d at most", i.Snd_cwnd, i.Snd_ssthresh+1)
	}
}

// A single loss, later, costs nothing of the window, however small the one was that the first losses left.
func TestStepsBackOnce(t *testing.T) {
	s, lose := stepsBack(t)
	s.settles()
	left := s.info(s.server).Snd_ssthresh
	go func() { _ = send(s.server, 0, 1<<20) }()
	s.eventually(30*time.Second, "the window has grown", func() bool { return s.info(s.server).Snd_cwnd >= left+8 })
	before := s.info(s.server)
	lose()
	s.becomes(caRecovery)
	if after := s.info(s.server); after.Snd_ssthresh < before.Snd_cwnd*3/4 {
		t.Errorf("after one loss the threshold is %d segments where the window was %d", after.Snd_ssthresh, before.Snd_cwnd)
	}
}

// Who takes over from a burst that has got to know its path has its window, and not a threshold of before.
func TestStepsBackAndKnows(t *testing.T) {
	s, _ := stepsBack(t)
	s.settles()
	left := s.info(s.server).Snd_ssthresh
	s.eventually(time.Minute, "a train has told the path's capacity", func() bool { // all of whose ACKs a busy host may hand over at once
		s.must(send(s.server, 0, aBurst))
		s.settles()
		return s.info(s.server).Pacing_rate < math.MaxUint64
	})
	s.to("cubic")
	s.must(send(s.server, 0, 4*aBurst))
	s.eventually(10*time.Second, "CUBIC has it", func() bool { return signals.Algorithm(s.state().get("plait_sock", "algorithm")) == signals.Cubic })
	if i := s.info(s.server); i.Snd_ssthresh <= left {
		t.Errorf("CUBIC begins with a threshold of %d segments, which losses before the first train left (%d); the window is %d", i.Snd_ssthresh, left, i.Snd_cwnd)
	}
}
