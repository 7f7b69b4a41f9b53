package link

import (
	"math"
	"testing"
)

func TestLossRate(t *testing.T) {
	const n, p = 1_000_000, 0.01
	l := NewLoss(p, 1)
	for range n {
		l.Send(0, Packet{})
		l.Receive(0)
	}
	// Binomial: the standard deviation of the rate is sqrt(p (1-p) / n).
	if got, sigma := float64(l.Dropped())/n, math.Sqrt(p*(1-p)/n); math.Abs(got-p) > 3*sigma {
		t.Errorf("loss rate %.5f, want %.5f +- %.5f", got, p, 3*sigma)
	}
}

func TestLossEnds(t *testing.T) {
	l := NewLoss(0, 1)
	l.Send(ms, numbered(0, 1500))
	l.SetProbability(1)
	l.Send(ms, numbered(1, 1500))
	wantQueued(t, l, 0, 0, 1)
	wantExits(t, l, exit{ms, 0})
}

func TestLossSeeds(t *testing.T) {
	pattern := func(seed uint64) (lost [64]bool) {
		l := NewLoss(0.5, seed)
		for i := range lost {
			before := l.Dropped()
			l.Send(0, Packet{})
			lost[i] = l.Dropped() > before
		}
		return lost
	}
	if first, again := pattern(1), pattern(1); first != again {
		t.Error("the same seed lost different packets")
	}
	if pattern(1) == pattern(2) {
		t.Error("different seeds lost the same packets")
	}
}
