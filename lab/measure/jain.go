package measure

import (
	"math"

	"plait.dev/plait/lab/result"
)

// Shares is how goodputs compare second by second.
type Shares struct {
	// Index is Jain's fairness index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984), (sum x)^2 / (n sum x^2) with x the mean goodput of the second: from 1/n (one has all) to 1 (equal shares).
	Index result.Series
	// Mean and Lowest are of Index; NaN without any second.
	Mean, Lowest float64
	// RatioMax is the largest ratio of the last series' goodput to the first's in a second.
	RatioMax float64
	// DoublePercent is the share of the seconds in which that ratio is above 2.
	DoublePercent float64
}

// leastMbps stands for all goodputs below it in a ratio: one packet of 1500 bytes a second.
const leastMbps = 0.012

// Jain compares series of goodput in Mbit/s in every second from fromS on from whose beginning to whose end all of them have values. Seconds in which nobody gets anything are left out.
func Jain(fromS float64, series ...result.Series) Shares {
	s := Shares{Index: result.Series{Name: "jain", Values: []float64{}}, Lowest: math.NaN()}
	seconds := 0
	means := make([][]float64, len(series))
	for i, one := range series {
		means[i] = wholeSeconds(one)
		seconds = max(seconds, len(means[i]))
	}
	sum, double := 0.0, 0.0
	for second := int(math.Ceil(fromS)); second < seconds; second++ {
		j, ok := jainOf(means, second)
		if !ok {
			continue
		}
		sum += j
		if len(s.Index.Values) == 0 || j < s.Lowest {
			s.Lowest = j
		}
		s.Index.TimesS, s.Index.Values = append(s.Index.TimesS, float64(second+1)), append(s.Index.Values, round(j))
		ratio := max(means[len(means)-1][second], leastMbps) / max(means[0][second], leastMbps)
		s.RatioMax = max(s.RatioMax, ratio)
		if ratio > 2 {
			double++
		}
	}
	if all := s.Index.TimesS; len(all) > 0 && all[len(all)-1]-all[0] == float64(len(all)-1) { // without a gap it is as goodput: each value of the second that ends there
		s.Index.StartS, s.Index.StepS, s.Index.TimesS = all[0], 1, nil
	}
	n := float64(len(s.Index.Values))
	s.Mean, s.DoublePercent = sum/n, 100*double/n
	return s
}

// Within is a series without the intervals that begin before fromS or end after toS: an application that ran for a part of one has a part of its goodput there.
func Within(s result.Series, fromS, toS float64) result.Series {
	const exact = 1e-6 // times of applications are in microseconds
	if s.StepS == 0 {
		return s
	}
	for len(s.Values) > 0 && s.StartS-s.StepS < fromS-exact {
		s.StartS, s.Values = s.StartS+s.StepS, s.Values[1:]
	}
	for len(s.Values) > 0 && s.StartS+float64(len(s.Values)-1)*s.StepS > toS+exact {
		s.Values = s.Values[:len(s.Values)-1]
	}
	return s
}

// wholeSeconds is PerSecond without the seconds in which the series begins or ends.
func wholeSeconds(s result.Series) []float64 {
	const exact = 1e-9 // the steps are not in binary
	means := s.PerSecond()
	if s.StepS == 0 {
		return means
	}
	begin, end := s.StartS-s.StepS-exact, s.StartS+float64(len(s.Values)-1)*s.StepS+exact
	for k := range means {
		if float64(k) < begin || float64(k+1) > end {
			means[k] = math.NaN()
		}
	}
	return means
}

// jainOf is the index of one second, or false if a series has no value or all are zero.
func jainOf(means [][]float64, second int) (float64, bool) {
	var sum, squares float64
	for _, m := range means {
		if second >= len(m) || math.IsNaN(m[second]) {
			return 0, false
		}
		sum += m[second]
		squares += m[second] * m[second]
	}
	return sum * sum / (float64(len(means)) * squares), squares > 0
}
