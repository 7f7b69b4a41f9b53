package report

import (
	"slices"

	"plait.dev/plait/lab/result"
)

// seriesID is one curve to be.
type seriesID struct {
	variant, series, name string
	hue                   int
}

// seriesCurves returns the curve of a series over the seeds of a variant: mean and band where the times agree, else one
// line per seed.
func seriesCurves(s source, point int, id seriesID) []curve {
	var runs []*result.Series
	even := true
	cells := s.table.Cells(point, id.variant)
	for _, cell := range cells {
		for i := range cell.Series {
			if r := &cell.Series[i]; r.Name == id.series && len(r.Values) > 0 {
				even = even && r.StepS > 0 && (len(runs) == 0 || r.StepS == runs[0].StepS && r.StartS == runs[0].StartS)
				runs = append(runs, r)
			}
		}
	}
	var curves []curve
	if even && len(runs) > 1 {
		return append(curves, meanCurve(id, runs, len(cells)))
	}
	for i, r := range runs {
		cv := curve{name: id.name, hue: id.hue, ys: r.Values, thin: i > 0, step: r.StepS == 0}
		for j := range r.Values {
			cv.xs, cv.parts = append(cv.xs, r.Time(j)), append(cv.parts, 1/float64(len(cells)))
		}
		curves = append(curves, cv)
	}
	return curves
}

// meanCurve averages runs, of so many, that were measured at the same times. Where a run has ended the others go on.
func meanCurve(id seriesID, runs []*result.Series, of int) curve {
	cv := curve{name: id.name, hue: id.hue}
	longest := runs[0]
	for _, r := range runs {
		if len(r.Values) > len(longest.Values) {
			longest = r
		}
	}
	for i := range longest.Values {
		var at []float64
		for _, r := range runs {
			if i < len(r.Values) {
				at = append(at, r.Values[i])
			}
		}
		stat := result.Summarise(at)
		cv.xs, cv.parts = append(cv.xs, longest.Time(i)), append(cv.parts, float64(len(at))/float64(of))
		cv.ys, cv.lo, cv.hi = append(cv.ys, stat.Mean), append(cv.lo, stat.Min), append(cv.hi, stat.Max)
	}
	return cv
}

// stack puts curves on top of each other; those without even times are left as lines. A run that has no value, such as a subflow that was never there, adds nothing: the top is the mean of the runs' sums.
func stack(curves []curve) []curve {
	var times []float64
	for _, cv := range curves {
		if cv.step || cv.thin {
			return curves
		}
		times = append(times, cv.xs...)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	below := make([]float64, len(times))
	stacked := make([]curve, len(curves))
	for i, cv := range curves {
		ys := slices.Clone(below)
		for j, at := range cv.xs {
			k, _ := slices.BinarySearch(times, at)
			ys[k] += cv.ys[j] * cv.parts[j]
		}
		stacked[i] = curve{name: cv.name, hue: cv.hue, xs: times, ys: ys, lo: below, area: true}
		below = ys
	}
	return stacked
}
