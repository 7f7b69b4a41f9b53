package measure

import (
	"math"

	"plait.dev/plait/lab/result"
)

// Jain computes Jain's fairness index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984) of goodput series for every second
// in which all of them have values: (sum x)^2 / (n sum x^2) with x the mean goodput of the second, from 1/n (one has all)
// to 1 (equal shares). Seconds in which nobody gets anything are left out. Without any second mean and lowest are NaN.
func Jain(series ...result.Series) (index result.Series, mean, lowest float64) {
	index = result.Series{Name: "fairness.jain", Values: []float64{}}
	seconds := 0
	means := make([][]float64, len(series))
	for i, s := range series {
		means[i] = perSecond(s)
		seconds = max(seconds, len(means[i]))
	}
	sum, lowest := 0.0, math.NaN()
	for second := range seconds {
		j, ok := jainOf(means, second)
		if !ok {
			continue
		}
		sum += j
		if len(index.Values) == 0 || j < lowest {
			lowest = j
		}
		index.TimesS, index.Values = append(index.TimesS, float64(second+1)), append(index.Values, round(j))
	}
	return index, sum / float64(len(index.Values)), lowest
}

// perSecond is the mean of a series in every second of the timeline, NaN where it has no value. The value of an interval
// belongs to the second in which the interval ends, its end included.
func perSecond(s result.Series) []float64 {
	var sums, counts []float64
	for i, v := range s.Values {
		at := s.StartS + float64(i)*s.StepS
		if s.TimesS != nil {
			at = s.TimesS[i]
		}
		second := max(0, int(math.Ceil(at-1e-9))-1) // the steps are not exact in binary
		if grow := second + 1 - len(sums); grow > 0 {
			sums, counts = append(sums, make([]float64, grow)...), append(counts, make([]float64, grow)...)
		}
		sums[second] += v
		counts[second]++
	}
	for i := range sums {
		sums[i] /= counts[i]
	}
	return sums
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
