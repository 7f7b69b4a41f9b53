package daemon

import (
	"math"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// Histogram counts burst latencies in the buckets of the kernel half. Bucket i takes in latencies from bucketFloorUs(i) to
// bucketFloorUs(i+1), the first one also all shorter, the last one all longer.
type Histogram struct {
	// Connections is how many connections the bursts are from.
	Connections uint64
	// Squares is the sum, over the connections, of the square of how many of the bursts are theirs.
	Squares uint64
	Counts  []uint64
}

// Verdict says how the managed connections fare against those on the system's default.
type Verdict string

// The verdicts. Only Worse has consequences: the daemon reverts the prefix.
const (
	Worse   Verdict = "worse"
	Better  Verdict = "better"
	Unclear Verdict = "unclear"
)

// Comparison is the ratio of geometric mean latencies, managed over held out: 0.8 is 20 % faster with plait.
type Comparison struct {
	// Ratio is 0 if a group has no burst: there is nothing to compare.
	Ratio float64 `json:"ratio"`
	// Low and High enclose the true ratio with 95 % confidence. Both are 0 as long as a group is worth fewer than minConnections.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Verdict is Worse or Better when the whole interval is, by more than the groups' clocks may differ.
	Verdict Verdict `json:"verdict"`
}

const (
	// minConnections is how many connections each group must be worth: with fewer, the mean of their logarithms is too far from a normal distribution.
	minConnections = 10
	// sameWithin is how much the groups' latencies may differ by the way they are timed: bursts of held-out connections begin
	// when the application writes, those of managed ones when the first packet leaves.
	sameWithin = 1.02
)

// bucketFloorUs is the least latency of bucket i: from 64 us, four steps of equal width to each doubling, as latency_bucket in
// bpf/measure.h divides.
func bucketFloorUs(i int) float64 {
	return math.Ldexp(float64(16*(4+i%4)), i/4)
}

// bucketLogs are the logarithms of the latencies all bursts of a bucket are taken to have: the middle, on the logarithmic scale. It
// errs by 12 % at most, in both groups alike. To compute them for each destination would take most of a comparison's time.
var bucketLogs = func() (logs [len(bpf.Group{}.Buckets)]float64) {
	for i := range logs {
		logs[i] = (math.Log(bucketFloorUs(i)) + math.Log(bucketFloorUs(i+1))) / 2
	}
	return logs
}()

// Bursts is how many latencies were counted.
func (h Histogram) Bursts() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// moments are the mean and the variance of the logarithms of the latencies in us; zero without bursts.
func (h Histogram) moments() (mean, variance float64) {
	n := float64(h.Bursts())
	if n == 0 {
		return 0, 0
	}
	for i, c := range h.Counts {
		mean += float64(c) / n * bucketLogs[i]
	}
	for i, c := range h.Counts {
		d := bucketLogs[i] - mean
		variance += float64(c) / n * d * d
	}
	return mean, variance
}

func (h Histogram) effective() float64 {
	return signals.EffectiveSize(float64(h.Bursts()), float64(h.Squares))
}

// bucketError is the variance within a bucket, as a logarithm: that of what is spread evenly over its width. So equal buckets do not make an error zero.
var bucketError = math.Pow(math.Log(bucketFloorUs(1)/bucketFloorUs(0)), 2) / 12

// unbiased is the variance of the logarithms, from that of a group which is worth n connections.
func unbiased(variance, n float64) float64 { return variance*n/(n-1) + bucketError }

// GeometricMeanUs is the geometric mean of the latencies, 0 without bursts.
func (h Histogram) GeometricMeanUs() float64 {
	if h.Bursts() == 0 {
		return 0
	}
	mean, _ := h.moments()
	return math.Exp(mean)
}

// QuantileUs is the latency that a share q, from 0 to 1, of the bursts does not exceed; 0 without bursts. Within a bucket the
// latencies are taken to be spread evenly on the logarithmic scale.
func (h Histogram) QuantileUs(q float64) float64 {
	wanted := q * float64(h.Bursts())
	for i, c := range h.Counts {
		if n := float64(c); n > 0 && wanted <= n {
			floor := bucketFloorUs(i)
			return floor * math.Pow(bucketFloorUs(i+1)/floor, wanted/n)
		}
		wanted -= float64(c)
	}
	return 0
}

// verdict on an interval.
func verdict(low, high float64) Verdict {
	switch {
	case low > sameWithin:
		return Worse
	case high < 1/sameWithin:
		return Better
	}
	return Unclear
}

// Compare compares the latencies of managed with those of held-out connections to the same destinations. It works on
// logarithms: latencies are products, and one slow burst must not outweigh a hundred. Chance decides who is held out, so what a connection is worth is that of the group
// where it is worth less: the smaller one may have none yet of the few that have most bursts.
func Compare(managed, holdout Histogram) Comparison {
	c := Comparison{Verdict: Unclear}
	if managed.Bursts() == 0 || holdout.Bursts() == 0 {
		return c
	}
	m, mv := managed.moments()
	h, hv := holdout.moments()
	c.Ratio = math.Exp(m - h)
	worth := min(managed.effective()/float64(managed.Connections), holdout.effective()/float64(holdout.Connections))
	nm, nh := worth*float64(managed.Connections), worth*float64(holdout.Connections)
	if !(min(nm, nh) >= minConnections) { // or no number, of counters read while they change
		return c
	}
	w := signals.HalfWidth(signals.SquaredError(unbiased(mv, nm), nm, unbiased(hv, nh), nh))
	c.Low, c.High = math.Exp(m-h-w), math.Exp(m-h+w)
	c.Verdict = verdict(c.Low, c.High)
	return c
}
