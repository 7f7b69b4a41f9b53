package link

import (
	"math"
	"testing"
	"time"
)

func TestJitterMeanAndCap(t *testing.T) {
	const n = 1_000_000
	const mean, limit = 10 * ms, 20 * ms
	j := NewJitter(JitterConfig{Mean: mean, Max: limit, Seed: 1})
	var sum float64
	capped := 0
	for range n {
		j.Send(0, Packet{})
		at, _ := j.Next()
		j.Receive(at)
		sum += float64(at)
		if at == limit {
			capped++
		}
	}
	// min(X, c) of an exponential X with mean m: with q = exp(-c/m), P(capped) = q, E = m (1-q) and
	// E[min^2] = 2 m^2 (1 - q (1 + c/m)).
	m, c := float64(mean), float64(limit)
	q := math.Exp(-c / m)
	wantMean := m * (1 - q)
	sigma := math.Sqrt((2*m*m*(1-q*(1+c/m)) - wantMean*wantMean) / n)
	if got := sum / n; math.Abs(got-wantMean) > 3*sigma {
		t.Errorf("mean delay %.0f ns, want %.0f +- %.0f", got, wantMean, 3*sigma)
	}
	if got, sigma := float64(capped)/n, math.Sqrt(q*(1-q)/n); math.Abs(got-q) > 3*sigma {
		t.Errorf("share at the cap %.5f, want %.5f +- %.5f", got, q, 3*sigma)
	}
}

func TestJitterOrder(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		j := NewJitter(JitterConfig{Mean: 10 * ms, Max: 100 * ms, InOrder: inOrder, Seed: 1})
		for i := range byte(100) {
			j.Send(time.Duration(i)*ms, numbered(i, 100))
		}
		overtaken := 0
		last := exit{}
		for i, e := range exits(j) {
			if e.at < last.at || e.at < time.Duration(e.number)*ms {
				t.Errorf("packet %d came out at %v after one at %v", e.number, e.at, last.at)
			}
			if i > 0 && e.number < last.number {
				overtaken++
			}
			last = e
		}
		if inOrder != (overtaken == 0) {
			t.Errorf("in order %v: %d packets were overtaken", inOrder, overtaken)
		}
	}
}
