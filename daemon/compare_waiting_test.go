package daemon

import (
	"math"
	"math/rand/v2"
	"testing"

	"plait.dev/plait/internal/rung"
)

// asking has the bursts of a connection that lasts so many seconds and asks for the next one when it has the last.
func asking(h *Histogram, seconds float64, latency func() float64) {
	var n, logs int64
	for seconds > 0 {
		s := latency()
		seconds -= s
		b := bucket(1e6 * s)
		h.Counts[b]++
		n, logs = n+1, logs+int64(bucketLog(b))
	}
	h.Connections++
	h.Squares += uint64(n * n)
	h.LogsSquared += logs * logs
	h.Products += logs * n
}

// Held-out connections of which one burst in ten waits a second for a timer, the others 20 ms, get through fewer bursts than managed ones that always take their geometric mean,
// and their bursts are spread further. That is no reason to be sure of a difference that is not there.
func TestCompareWaiting(t *testing.T) {
	const usual, timer, waits, seconds, connections = 0.02, 1, 0.1, 3, 1000
	r := rand.New(rand.NewPCG(0, 1))
	about := func(s float64) float64 { return s * math.Exp(0.1*r.NormFloat64()) }
	managed := func() float64 { return about(usual * math.Pow(timer/usual, waits)) }
	heldOut := func() float64 {
		if r.Float64() < waits {
			return timer
		}
		return about(usual)
	}
	none := func() Histogram { return Histogram{Counts: make([]uint64, 96)} }
	long := [2]Histogram{none(), none()}
	for range 10_000 {
		asking(&long[0], seconds, managed)
		asking(&long[1], seconds, heldOut)
	}
	ratio := long[0].GeometricMeanUs() / long[1].GeometricMeanUs()
	if ratio > sameWithin || ratio < 1/sameWithin {
		t.Fatalf("the true ratio is %.3f, want none to speak of", ratio)
	}
	trials, wrong, missed := rung.Times(15, 200), 0, 0
	for seed := range uint64(trials) {
		r = rand.New(rand.NewPCG(seed, 2))
		m, h := none(), none()
		clear, miss := false, false
		for i := 1; i <= connections; i++ {
			asking(&m, seconds, managed)
			if i%19 == 0 {
				asking(&h, seconds, heldOut)
			}
			if i%25 == 0 {
				c := Compare(m, h)
				clear = clear || c.Verdict != Unclear
				miss = miss || c.Low > 0 && (c.Low > ratio || c.High < ratio)
			}
		}
		if clear {
			wrong++
		}
		if miss {
			missed++
		}
	}
	const alpha = 0.05
	limit := float64(trials)*alpha + 3*math.Sqrt(float64(trials)*alpha*(1-alpha))
	t.Logf("%d of %d verdicts, interval left the truth out in %d", wrong, trials, missed)
	if float64(wrong) > limit || float64(missed) > limit {
		t.Errorf("%d verdicts and %d intervals without the truth, at most %.0f of %d may be", wrong, missed, limit, trials)
	}
}
