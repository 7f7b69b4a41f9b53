package daemon

import (
	"math"

	"plait.dev/plait/signals"
)

// Histogram counts burst latencies in the buckets of the kernel half. Bucket i takes in latencies from bucketFloorUs(i) to
// bucketFloorUs(i+1), the first one also all shorter, the last one all longer.
type Histogram struct {
	// Connections is how many connections the bursts are from.
	Connections uint64
	// Squares is the sum, over the connections, of the square of how many of the bursts are theirs.
	Squares uint64
	// LogsSquared and Products are the sums, over the connections, of the square of the sum of their bursts' logarithms, and of that sum times how many
	// the bursts are. Logarithms are those of the kernel half: 32nds of an octave above 64 us * 2^8. The sums may have gone round.
	LogsSquared, Products int64
	Counts                []uint64
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
	// Low and High enclose the true ratio with 95 % confidence. Both are 0 as long as a group is worth fewer than ten connections.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Verdict is Worse or Better when the whole interval is, by more than the groups' clocks may differ.
	Verdict Verdict `json:"verdict"`
}

// sameWithin is how much the groups' latencies may differ by the way they are timed: bursts of held-out connections begin
// when the application writes, those of managed ones when the first packet leaves.
const sameWithin = 1.02

// bucketFloorUs is the least latency of bucket i: from 64 us, four steps of equal width to each doubling, as latency_bucket in
// bpf/measure.h divides.
func bucketFloorUs(i int) float64 {
	return math.Ldexp(float64(16*(4+i%4)), i/4)
}

// step is what the kernel half counts logarithms in, and middle the logarithm 0.
const (
	octave = 32
	step   = math.Ln2 / octave
	middle = 8 * octave
)

// bucketLog is the logarithm all bursts of a bucket are taken to have, as latency_log in bpf/measure.h: within 1.2 % of the middle of the bucket on the logarithmic scale. It
// errs by 12.2 % at most, in both groups alike.
func bucketLog(i int) int {
	return i/4*octave + [4]int{5, 15, 22, 29}[i%4] - middle
}

// latencyUs is the latency with this natural logarithm.
func latencyUs(log float64) float64 { return bucketFloorUs(0) * math.Exp(log+step*middle) }

// Bursts is how many latencies were counted.
func (h Histogram) Bursts() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// log is the mean of the logarithms.
func (h Histogram) log() float64 {
	var total float64
	for i, c := range h.Counts {
		total += float64(c) * float64(bucketLog(i))
	}
	return total / float64(h.Bursts())
}

// sums are those of the logarithms above from, as natural ones. At a millisecond 250 connections with a million bursts each make squares that go round in 64 bits; of what
// each has more or less than a mean they do not, and integers that went round give the right difference.
func (h Histogram) sums(from int64) signals.Group {
	bursts, squares := h.Bursts(), int64(h.Squares)
	return signals.Group{
		Connections: float64(h.Connections), Samples: float64(bursts), SamplesSquared: float64(h.Squares),
		Total:         step * (h.log() - float64(from)) * float64(bursts),
		TotalsSquared: step * step * float64(h.LogsSquared-2*from*h.Products+from*from*squares),
		Products:      step * float64(h.Products-from*squares),
	}
}

// GeometricMeanUs is the geometric mean of the latencies, 0 without bursts.
func (h Histogram) GeometricMeanUs() float64 {
	if h.Bursts() == 0 {
		return 0
	}
	return latencyUs(step * h.log())
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

// bucketNoise is the variance within a bucket, of what is spread evenly over its width, the widest one's. So equal buckets do not make an error zero.
var bucketNoise = math.Pow(math.Log(bucketFloorUs(1)/bucketFloorUs(0)), 2) / 12

// Compare compares the latencies of managed with those of held-out connections to the same destinations. It works on
// logarithms: latencies are products, and one slow burst must not outweigh a hundred.
func Compare(managed, holdout Histogram) Comparison {
	c := Comparison{Verdict: Unclear}
	if managed.Bursts() == 0 || holdout.Bursts() == 0 {
		return c
	}
	m, h := managed.log(), holdout.log()
	c.Ratio = math.Exp(step * (m - h))
	from := int64(math.Round((m + h) / 2))
	low, high, ok := signals.Interval(managed.sums(from), holdout.sums(from), bucketNoise)
	if !ok {
		return c
	}
	c.Low, c.High = math.Exp(low), math.Exp(high)
	c.Verdict = verdict(c.Low, c.High)
	return c
}
