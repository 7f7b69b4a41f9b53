package daemon

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plait.dev/plait/internal/rung"
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

// oneEach is a group of connections with one burst each.
func oneEach(of map[int]uint64) Histogram {
	h := Histogram{Counts: counts(of)}
	for i, n := range of {
		x := int64(bucketLog(i))
		h.Connections += n
		h.LogsSquared += x * x * int64(n)
		h.Products += x * int64(n)
	}
	h.Squares = h.Connections
	return h
}

// evenly is a group of connections with equally many bursts each, all in one bucket.
func evenly(connections, bursts uint64, bucket int) Histogram {
	x := int64(bucketLog(bucket)) * int64(bursts)
	return Histogram{Connections: connections, Squares: connections * bursts * bursts, LogsSquared: int64(connections) * x * x, Products: int64(connections*bursts) * x,
		Counts: counts(map[int]uint64{bucket: connections * bursts})}
}

func TestHistogramByHand(t *testing.T) {
	// 3 bursts in 64 to 80 us, 1 in 128 to 160 us.
	h := Histogram{Counts: counts(map[int]uint64{0: 3, 4: 1})}
	// The latter is an octave longer, a quarter of the bursts.
	near(t, "geometric mean", h.GeometricMeanUs(), 64*math.Exp2(5./32+0.25))
	// 2 of 4 bursts are 2/3 through the first bucket, 3.8 of 4 are 0.8 through the other.
	near(t, "p50", h.QuantileUs(0.5), 64*math.Pow(80./64, 2./3))
	near(t, "p95", h.QuantileUs(0.95), 128*math.Pow(160./128, 0.8))
}

// The logarithm of a bucket is near that of its middle.
func TestBucketLog(t *testing.T) {
	for i := range 95 {
		if got, want := latencyUs(step*float64(bucketLog(i))), math.Sqrt(bucketFloorUs(i)*bucketFloorUs(i+1)); math.Abs(math.Log(got/want)) > 0.012 {
			t.Errorf("bucket %d stands for %.1f us, its middle is %.1f", i, got, want)
		}
	}
}

func TestCompareEmpty(t *testing.T) {
	full := evenly(1000, 1, 40)
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
	slow, fast := evenly(9, 90, 48), evenly(1000, 90, 40)
	c := Compare(slow, fast)
	near(t, "ratio", c.Ratio, 4)
	if c.Low != 0 || c.High != 0 || c.Verdict != Unclear {
		t.Errorf("9 connections: %+v, want no interval", c)
	}
	slow = evenly(10, 90, 48)
	if c := Compare(slow, fast); c.Verdict != Worse || c.Low < 2 || c.Low > 4 || c.High < 4 {
		t.Errorf("10 connections, four times as slow: %+v, want worse", c)
	}
	if c := Compare(fast, slow); c.Verdict != Better {
		t.Errorf("four times as fast: %+v, want better", c)
	}
	few := evenly(10, 90, 48) // counters read while they change
	few.Counts = counts(map[int]uint64{48: 1})
	if c := Compare(few, fast); c.Low != 0 || c.Verdict != Unclear {
		t.Errorf("one burst: %+v, want no interval", c)
	}
}

// Of few held out, not one may have met what one burst in thirty does.
func TestCompareTimeouts(t *testing.T) {
	managed, holdout := oneEach(map[int]uint64{40: 290, 67: 10}), oneEach(map[int]uint64{40: 15}) // 67 is 108 times as long
	if c := Compare(managed, holdout); c.Verdict != Unclear || c.Low <= 0 {
		t.Errorf("%+v, want unclear, with an interval: of 15 like the others none does with a chance of 60 %%", c)
	}
}

// Squares of a million bursts go round in 64 bits, and must not look like connections that are all the same.
func TestCompareRoundSums(t *testing.T) {
	of := func(buckets ...int) (h Histogram) { // connections with a million bursts each, by turns in these buckets
		const connections, bursts = 500, 1_000_000
		h = Histogram{Connections: connections, Squares: connections * bursts * bursts, Counts: make([]uint64, 96)}
		for i := range connections {
			b := buckets[i%len(buckets)]
			sum := int64(bucketLog(b)) * bursts
			h.LogsSquared += sum * sum
			h.Products += sum * bursts
			h.Counts[b] += bursts
		}
		return h
	}
	few, many := oneEach(map[int]uint64{8: 250, 16: 250}), of(8, 16)
	if many.LogsSquared > 0 {
		t.Fatalf("%d did not go round", many.LogsSquared)
	}
	if got, want := Compare(many, many), Compare(few, few); math.Abs(got.Low-want.Low) > 1e-6 || math.Abs(got.High-want.High) > 1e-6 {
		t.Errorf("a million bursts each: %+v, one each: %+v", got, want)
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

// clients draws connections: how many bursts each has, by how much its median differs, as a logarithm, and each of its bursts from that.
type clients struct {
	bursts        func(*rand.Rand) int
	median, burst func(r *rand.Rand, bursts int) float64
	heldOut       int // one is held out to so many managed ones
}

// normal draws logarithms with this deviation.
func normal(deviation float64) func(*rand.Rand, int) float64 {
	return func(r *rand.Rand, _ int) float64 { return deviation * r.NormFloat64() }
}

// spread have numbers of bursts that are spread exponentially, about 20 in the mean, two thirds of whose latencies are within a factor of 2 of the median.
var spread = clients{func(r *rand.Rand) int { return 1 + int(19*r.ExpFloat64()) }, normal(0.5), normal(0.5), 5}

// lasting have one burst, and one in a hundred as many as an open one has until the end of a trial.
var lasting = clients{func(r *rand.Rand) int {
	if r.IntN(100) == 0 {
		return math.MaxInt
	}
	return 1
}, normal(0.5), normal(0.5), 5}

// timingOut have one burst each, which takes much the same time, but one in thirty waits for a timer, a hundred times as long. The share that is held out is the default.
var timingOut = clients{func(*rand.Rand) int { return 1 }, normal(0), func(r *rand.Rand, _ int) float64 {
	return 0.03*r.NormFloat64() + math.Log(100)*float64(max(0, 1-r.IntN(30)))
}, 19}

// slow have one burst, and one in 500 has 50 of them and is ten times as far away.
var slow = clients{func(r *rand.Rand) int {
	if r.IntN(500) == 0 {
		return 50
	}
	return 1
}, func(r *rand.Rand, bursts int) float64 { return 0.1*r.NormFloat64() + math.Log(10)*float64(bursts/50) }, normal(0.1), 19}

// far have one burst, and one in a hundred has 11 of them and is ten times as far away. Half are held out.
var far = clients{func(r *rand.Rand) int {
	if r.IntN(100) == 0 {
		return 11
	}
	return 1
}, func(r *rand.Rand, bursts int) float64 { return 0.1*r.NormFloat64() + math.Log(10)*float64(bursts/11) }, normal(0.1), 1}

// client is a connection that is open.
type client struct {
	median float64 // as a logarithm
	sent   uint64
	logs   int64
	bursts int
	group  *Histogram
}

// trial compares after every 25th managed connection; whoever is open sends a burst each time one comes. It returns
// the first clear verdict, after how many connections it fell, and whether the interval left the truth out at any look.
func trial(seed uint64, ratio float64, connections int, of clients) (verdict Verdict, after int, missed bool) {
	r := rand.New(rand.NewPCG(seed, 1))
	managed, holdout := Histogram{Counts: make([]uint64, 96)}, Histogram{Counts: make([]uint64, 96)}
	verdict = Unclear
	var open []*client
	comes := func(group *Histogram, ratio float64) {
		c := &client{bursts: of.bursts(r), group: group}
		c.median = math.Log(20_000*ratio) + of.median(r, c.bursts)
		open = append(open, c)
		group.Connections++
	}
	for i := 1; i <= connections; i++ {
		comes(&managed, ratio)
		if i%of.heldOut == 0 {
			comes(&holdout, 1)
		}
		for _, c := range open {
			b := bucket(math.Exp(c.median + of.burst(r, c.bursts)))
			log := int64(bucketLog(b))
			c.group.Squares += 2*c.sent + 1
			c.group.LogsSquared += log * (2*c.logs + log)
			c.group.Products += c.logs + int64(c.sent+1)*log
			c.group.Counts[b]++
			c.sent, c.logs = c.sent+1, c.logs+log
		}
		open = slices.DeleteFunc(open, func(c *client) bool { return c.sent == uint64(c.bursts) })
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

// Without a difference the daemon must leave a prefix alone although it looks again and again, also where a few connections have nearly all bursts between them, or few bursts take very long; a
// difference of 30 % it must see.
func TestCompareKnownTruth(t *testing.T) {
	trials := rung.Times(15, 200)
	const alpha = 0.05
	limit := float64(trials)*alpha + 3*math.Sqrt(float64(trials)*alpha*(1-alpha))
	for _, c := range []struct {
		name  string
		of    clients
		ratio float64
		want  Verdict
		most  int // connections
	}{{"spread", spread, 1, Unclear, 2500}, {"spread", spread, 1.3, Worse, 2500}, {"spread", spread, 1 / 1.3, Better, 2500}, {"lasting", lasting, 1, Unclear, 1000},
		{"timing out", timingOut, 1, Unclear, 2500}, {"slow", slow, 1, Unclear, 2500}, {"far", far, 1, Unclear, 1000}} {
		wrong, missed, slowest := 0, 0, 0
		for seed := range uint64(trials) {
			got, after, miss := trial(seed, c.ratio, c.most, c.of)
			if got != c.want {
				wrong++
			}
			if miss {
				missed++
			}
			slowest = max(slowest, after)
		}
		t.Logf("%s, ratio %.2f: %d of %d verdicts not %s, interval left the truth out in %d, the slowest verdict after %d connections", c.name, c.ratio, wrong, trials, c.want, missed, slowest)
		if float64(wrong) > limit || float64(missed) > limit {
			t.Errorf("%s, ratio %.2f: %d verdicts not %s and %d intervals without the truth, at most %.0f of %d may be", c.name, c.ratio, wrong, c.want, missed, limit, trials)
		}
	}
}
