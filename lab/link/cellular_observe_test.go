package link

import (
	"math"
	"slices"
)

// series is the packets that a link could carry in each millisecond.
type series []int32

// recordedSeries counts a recording.
func recordedSeries(opportunitiesMs []uint32) series {
	s := make(series, opportunitiesMs[len(opportunitiesMs)-1]+1)
	for _, ms := range opportunitiesMs {
		s[ms]++
	}
	return s
}

// modelSeries counts the first milliseconds of a model.
func modelSeries(src opportunities, milliseconds int) series {
	s := make(series, milliseconds)
	for {
		at, bytes := src.next()
		if at.Milliseconds() >= int64(milliseconds) {
			return s
		}
		s[at.Milliseconds()] += int32(bytes / opportunityBytes)
	}
}

// mbps is the rates in Mbit/s of bins of that many milliseconds.
func (s series) mbps(binMs int) []float64 {
	rates := make([]float64, len(s)/binMs)
	for i := range rates {
		for _, packets := range s[i*binMs : (i+1)*binMs] {
			rates[i] += float64(packets) * opportunityBytes * 8 / (float64(binMs) * 1000)
		}
	}
	return rates
}

// gapsMs is the times between opportunities, those in the same millisecond aside.
func (s series) gapsMs() []float64 {
	var gaps []float64
	last := -1
	for ms, packets := range s {
		if packets > 0 {
			if last >= 0 {
				gaps = append(gaps, float64(ms-last))
			}
			last = ms
		}
	}
	return gaps
}

// acfLagsS is where autocorrelations are compared, in seconds; acfBinMs is the bins of the rate they are of.
var acfLagsS = [...]float64{0.1, 0.5, 1, 2, 5, 10}

const acfBinMs = 100

// observation is the statistics by which a model is compared with a recording.
type observation struct {
	seconds       float64
	meanMbps      float64
	acf           [len(acfLagsS)]float64
	outageShare   float64 // of time
	outagesPerMin float64
	outagesMs     []float64 // sorted lengths
	fine, coarse  []float64 // sorted rates in bins of 100 ms and 1 s, in Mbit/s
}

func observe(s series) observation {
	o := observation{seconds: float64(len(s)) / 1000, fine: s.mbps(acfBinMs), coarse: s.mbps(1000)}
	o.meanMbps = mean(o.fine)
	for i, lag := range acfLagsS {
		o.acf[i] = autocorrelation(o.fine, int(math.Round(lag*1000/acfBinMs)))
	}
	for _, gap := range s.gapsMs() {
		if gap >= cellularOutageMin {
			o.outagesMs = append(o.outagesMs, gap)
			o.outageShare += gap / float64(len(s))
		}
	}
	o.outagesPerMin = float64(len(o.outagesMs)) / o.seconds * 60
	slices.Sort(o.outagesMs)
	slices.Sort(o.fine)
	slices.Sort(o.coarse)
	return o
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func deviation(x []float64) float64 {
	m, sum := mean(x), 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(x)))
}

// autocorrelation is the usual estimate with the mean of x itself, which is too low at lags near the length of x.
func autocorrelation(x []float64, lag int) float64 {
	m, at, lagged := mean(x), 0.0, 0.0
	for i, v := range x {
		at += (v - m) * (v - m)
		if i+lag < len(x) {
			lagged += (v - m) * (x[i+lag] - m)
		}
	}
	return lagged / at
}

// quantile interpolates in sorted x.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	at := q * float64(len(x)-1)
	i := min(int(at), max(len(x)-2, 0))
	j := min(i+1, len(x)-1)
	return x[i] + (at-float64(i))*(x[j]-x[i])
}

// kolmogorov is the largest distance between the distributions of two sorted samples (Kolmogorov and Smirnov).
func kolmogorov(a, b []float64) float64 {
	largest := 0.0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		v := min(a[i], b[j])
		for i < len(a) && a[i] == v {
			i++
		}
		for j < len(b) && b[j] == v {
			j++
		}
		largest = max(largest, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return largest
}
