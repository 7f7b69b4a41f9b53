package report

import (
	"math"
	"strconv"
	"strings"
)

// scale maps values to pixels.
type scale struct {
	min, max float64
	log      bool
	from, to float64
}

// leastSpan is far from the least number, which has no fifth.
const leastSpan = 1e-300

// newScale covers min to max with a range that ends on ticks. A linear scale starts at zero unless its values do not and
// are far from it.
func newScale(min, max float64, log bool) scale {
	if log && min > 0 {
		min, max = math.Max(min, leastSpan), math.Max(max, leastSpan)
		s := scale{min: floorNice(min), max: ceilNice(max), log: true}
		if s.min == s.max {
			s.max *= 10
		}
		return s
	}
	if min > 0 && min < 0.75*max || min == max && min > 0 {
		min = 0
	}
	if max <= min {
		max = min + 1
	}
	// Between values that are nearly the same there are no others to put ticks at.
	max = math.Max(max, min+math.Max(leastSpan, 1e-9*math.Max(math.Abs(min), math.Abs(max))))
	step := tickStep(max-min, 5)
	s := scale{min: math.Floor(min/step+1e-9) * step, max: math.Ceil(max/step-1e-9) * step}
	if half := s.max - step/2; half >= max {
		s.max = half // not half a panel of nothing
	}
	return s
}

// floorNice and ceilNice round to 1, 2 or 5 times a power of ten.
func floorNice(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if v >= m*decade*(1-1e-9) {
			return m * decade
		}
	}
	return decade
}

func ceilNice(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*decade*(1+1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// tickStep is the nice distance that puts about n ticks on a span.
func tickStep(span float64, n int) float64 {
	return ceilNice(span / float64(n))
}

// on returns the scale laid over a range of pixels.
func (s scale) on(from, to float64) scale {
	s.from, s.to = from, to
	return s
}

// at returns the pixel of v; values outside the scale are put at its ends.
func (s scale) at(v float64) float64 {
	share := (v - s.min) / (s.max - s.min)
	if s.log {
		share = 0
		if v > s.min {
			share = math.Log(v/s.min) / math.Log(s.max/s.min)
		}
	}
	return s.from + math.Max(0, math.Min(1, share))*(s.to-s.from)
}

// ticks returns about n values to label.
func (s scale) ticks(n int) []float64 {
	var values []float64
	if s.log {
		wide := math.Log10(s.max/s.min) > 2.5
		for v := floorNice(s.min); v <= s.max*(1+1e-9); v = ceilNice(v * 1.5) {
			decade := math.Abs(math.Log10(v)-math.Round(math.Log10(v))) < 1e-9
			if v >= s.min*(1-1e-9) && (decade || !wide) {
				values = append(values, v)
			}
		}
		return values
	}
	step := tickStep(s.max-s.min, n)
	for i := math.Ceil(s.min/step - 1e-9); i*step <= s.max+step*1e-9; i++ {
		values = append(values, i*step)
	}
	return values
}

// tick writes the number at a tick.
func tick(v float64) string {
	v += 0 // no negative zero
	for _, unit := range []struct {
		size, divisor float64
		name          string
	}{{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e5, 1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return strconv.FormatFloat(v/unit.divisor, 'g', 4, 64) + unit.name
		}
	}
	return strings.Replace(strconv.FormatFloat(v, 'g', 6, 64), "-", "−", 1)
}

// value writes a measured number with about three significant digits.
func value(v float64) string {
	a := math.Abs(v)
	decimals := 0
	switch {
	case v == math.Trunc(v) && a < 1e6, a >= 99.95:
	case a >= 9.995:
		decimals = 1
	case a >= 0.9995:
		decimals = 2
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return group(strconv.FormatFloat(v, 'f', decimals, 64))
}

// group puts thin spaces between the thousands of long numbers.
func group(number string) string {
	whole, rest, _ := strings.Cut(number, ".")
	digits := strings.TrimPrefix(whole, "-")
	if len(digits) < 5 {
		return number
	}
	var out []string
	for len(digits) > 3 {
		out = append([]string{digits[len(digits)-3:]}, out...)
		digits = digits[:len(digits)-3]
	}
	number = strings.Join(append([]string{digits}, out...), "\u2009")
	if strings.HasPrefix(whole, "-") {
		number = "-" + number
	}
	if rest != "" {
		number += "." + rest
	}
	return number
}
