package result

import "math"

// PerSecond is the mean of the series in every second of the timeline, NaN where it has no value. The value of an interval
// belongs to the second in which the interval ends, its end included.
func (s Series) PerSecond() []float64 {
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
