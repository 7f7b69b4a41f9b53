package daemon

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: got %.12g, want %.12g", what, got, want)
	}
}

// The bounds, written out from latency_bucket() in bpf/measure.h: us >> 4 halves until it is 4 to 7.
func TestBucketFloor(t *testing.T) {
	for i, want := range map[int]float64{0: 64, 1: 80, 2: 96, 3: 112, 4: 128, 5: 160, 6: 192, 7: 224, 8: 256, 40: 65536, 95: 112 << 23} {
		near(t, "bucket", bucketFloorUs(i), want)
	}
}

// counts of bursts in few buckets.
func counts(of map[int]uint64) []uint64 {
	c := make([]uint64, 96)
	for i, n := range of {
		c[i] = n
	}
	return c
}

func TestHistogramByHand(t *testing.T) {
	// 3 bursts in 64 to 80 us, 1 in 128 to 160 us.
	h := Histogram{Connections: 2, Counts: counts(map[int]uint64{0: 3, 4: 1})}
	a, b := math.Sqrt(64*80), math.Sqrt(128*160)
	near(t, "geometric mean", h.GeometricMeanUs(), math.Pow(a*a*a*b, 0.25))
	// b is 2a, so the logarithms differ by ln 2; three of four are 1/4 of it below the mean, one is 3/4 above.
	_, variance := h.moments()
	near(t, "variance", variance, math.Ln2*math.Ln2*(3*1./16+9./16)/4)
	// 2 of 4 bursts are 2/3 through the first bucket, 3.8 of 4 are 0.8 through the other.
	near(t, "p50", h.QuantileUs(0.5), 64*math.Pow(80./64, 2./3))
	near(t, "p95", h.QuantileUs(0.95), 128*math.Pow(160./128, 0.8))
	// 4 bursts of 2 connections count as 2, so the variance of one is twice that of the counts.
	width := math.Log(1.25)
	near(t, "squared error", h.squaredError(), (variance*2/1+width*width/12)/2)
}

func TestEffective(t *testing.T) {
	for _, c := range []struct{ connections, bursts, want uint64 }{{10, 10, 10}, {10, 1000, 10}, {0, 5, 0}, {5, 0, 0}, {5, 3, 3}} {
		h := Histogram{Connections: c.connections, Counts: []uint64{c.bursts}}
		near(t, "effective", h.effective(), float64(c.want))
	}
}

func TestCompareEmpty(t *testing.T) {
	full := Histogram{Connections: 1000, Counts: counts(map[int]uint64{40: 1000})}
	none := Histogram{Counts: make([]uint64, 96)}
	for _, c := range []Comparison{Compare(none, full), Compare(full, none), Compare(none, none), Compare(Histogram{}, Histogram{})} {
		if c != (Comparison{Verdict: Unclear}) {
			t.Errorf("got %+v, want unclear and nothing else", c)
		}
	}
	if m, q := none.GeometricMeanUs(), none.QuantileUs(0.5); m != 0 || q != 0 {
		t.Errorf("without bursts mean %v and median %v, want 0", m, q)
	}
}

// A ratio is told at once, an interval from ten connections on, however many bursts there are.
func TestCompareFewConnections(t *testing.T) {
	slow := Histogram{Connections: 9, Counts: counts(map[int]uint64{48: 90000})}
	fast := Histogram{Connections: 1000, Counts: counts(map[int]uint64{40: 90000})}
	c := Compare(slow, fast)
	near(t, "ratio", c.Ratio, 4)
	if c.Low != 0 || c.High != 0 || c.Verdict != Unclear {
		t.Errorf("9 connections: %+v, want no interval", c)
	}
	slow.Connections = 10
	if c := Compare(slow, fast); c.Verdict != Worse || c.Low < 2 || c.Low > 4 || c.High < 4 {
		t.Errorf("10 connections, four times as slow: %+v, want worse", c)
	}
	if c := Compare(fast, slow); c.Verdict != Better {
		t.Errorf("four times as fast: %+v, want better", c)
	}
	few := Histogram{Connections: 10, Counts: counts(map[int]uint64{48: 1})} // counters read while they change
	if c := Compare(few, fast); c.Low != 0 || c.Verdict != Unclear {
		t.Errorf("one burst: %+v, want no interval", c)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      Verdict
	}{
		{0.8, 1.2, Unclear}, {1.01, 1.3, Unclear}, {1.03, 1.3, Worse}, {0.7, 0.97, Better}, {0.7, 0.99, Unclear},
	} {
		if got := verdict(c.low, c.high); got != c.want {
			t.Errorf("%v to %v is %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

// bucket is latency_bucket() of bpf/measure.h.
func bucket(us float64) int {
	n, octave := uint64(us), 0
	if n < 64 {
		return 0
	}
	for n >>= 4; n >= 8; n >>= 1 {
		octave++
	}
	return min(octave*4+int(n&3), 95)
}

// connect draws a connection with a median latency of its own and a number of bursts that is spread exponentially, about 20 in
// the mean: half the variance of the logarithms lies between connections.
func (h *Histogram) connect(r *rand.Rand, medianUs float64) {
	const deviation = 0.5 // of either half: two thirds of all latencies are within a factor of 2 of the median
	of := medianUs * math.Exp(deviation*r.NormFloat64())
	h.Connections++
	for n := 1 + int(19*r.ExpFloat64()); n > 0; n-- {
		h.Counts[bucket(of*math.Exp(deviation*r.NormFloat64()))]++
	}
}

// trial compares after every 25th managed connection, with one held out to five managed. It returns the first clear verdict,
// after how many connections it fell, and whether the interval left the truth out at any look.
func trial(seed uint64, ratio float64, connections int) (verdict Verdict, after int, missed bool) {
	r := rand.New(rand.NewPCG(seed, 1))
	managed, holdout := Histogram{Counts: make([]uint64, 96)}, Histogram{Counts: make([]uint64, 96)}
	verdict = Unclear
	for i := 1; i <= connections; i++ {
		managed.connect(r, 20_000*ratio)
		if i%5 == 0 {
			holdout.connect(r, 20_000)
		}
		if i%25 != 0 {
			continue
		}
		c := Compare(managed, holdout)
		missed = missed || c.Low > 0 && (c.Low > ratio || c.High < ratio)
		if verdict == Unclear && c.Verdict != Unclear {
			verdict, after = c.Verdict, i
		}
	}
	return verdict, after, missed
}

// Without a difference the daemon must leave a prefix alone although it looks 100 times; with one of 30 % it must see it.
func TestCompareKnownTruth(t *testing.T) {
	const trials = 200
	const alpha = 0.05
	limit := trials*alpha + 3*math.Sqrt(trials*alpha*(1-alpha))
	for _, c := range []struct {
		ratio float64
		want  Verdict
	}{{1, Unclear}, {1.3, Worse}, {1 / 1.3, Better}} {
		wrong, missed, slowest := 0, 0, 0
		for seed := range uint64(trials) {
			got, after, miss := trial(seed, c.ratio, 2500)
			if got != c.want {
				wrong++
			}
			if miss {
				missed++
			}
			slowest = max(slowest, after)
		}
		t.Logf("ratio %.2f: %d of %d verdicts not %s, interval left the truth out in %d, the slowest verdict after %d connections", c.ratio, wrong, trials, c.want, missed, slowest)
		if float64(wrong) > limit || float64(missed) > limit {
			t.Errorf("ratio %.2f: %d verdicts not %s and %d intervals without the truth, at most %.0f of %d may be", c.ratio, wrong, c.want, missed, limit, trials)
		}
	}
}
