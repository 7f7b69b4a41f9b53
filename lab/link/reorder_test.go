package link

import (
	"math"
	"testing"
	"time"
)

func TestReorderShare(t *testing.T) {
	const n, p = 100_000, 0.1
	r := NewReorder(ReorderConfig{Probability: p, Extra: 5 * ms, Seed: 1})
	held := 0
	for i := range n {
		now := time.Duration(i) * 10 * ms
		r.Send(now, Packet{})
		switch at, _ := r.Next(); at {
		case now:
		case now + 5*ms:
			held++
		default:
			t.Fatalf("packet sent at %v came out at %v", now, at)
		}
		r.Receive(now + 5*ms)
	}
	if got, sigma := float64(held)/n, math.Sqrt(p*(1-p)/n); math.Abs(got-p) > 3*sigma {
		t.Errorf("share held back %.4f, want %.4f +- %.4f", got, p, 3*sigma)
	}
}

func TestReorderOvertakes(t *testing.T) {
	r := NewReorder(ReorderConfig{Probability: 1, Extra: 5 * ms, Seed: 1})
	r.Send(0, numbered(0, 1500))
	r.config.Probability = 0
	r.Send(4*ms, numbered(1, 1500))
	r.Send(5*ms, numbered(2, 1500))
	r.Send(6*ms, numbered(3, 1500))
	// What comes within 5 ms overtakes; on a tie the earlier packet goes first.
	wantExits(t, r, exit{4 * ms, 1}, exit{5 * ms, 0}, exit{5 * ms, 2}, exit{6 * ms, 3})
}
