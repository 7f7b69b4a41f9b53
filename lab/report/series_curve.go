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
	for _, cell := range s.table.Cells(point, id.variant) {
		for i := range cell.Series {
			if r := &cell.Series[i]; r.Name == id.series && len(r.Values) > 0 {
				even = even && r.StepS > 0 && (len(runs) == 0 || r.StepS == runs[0].StepS && r.StartS == runs[0].StartS)
				runs = append(runs, r)
			}
		}
	}
	var curves []curve
	if even && len(runs) > 1 {
		return append(curves, meanCurve(id, runs))
	}
	for i, r := range runs {
		cv := curve{name: id.name, hue: id.hue, ys: r.Values, thin: i > 0, step: r.StepS == 0}
		for j := range r.Values {
			cv.xs = append(cv.xs, r.Time(j))
		}
		curves = append(curves, cv)
	}
	return curves
}

// meanCurve averages runs that were measured at the same times. Where a run has ended the others go on.
func meanCurve(id seriesID, runs []*result.Series) curve {
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
		cv.xs = append(cv.xs, longest.Time(i))
		cv.ys, cv.lo, cv.hi = append(cv.ys, stat.Mean), append(cv.lo, stat.Min), append(cv.hi, stat.Max)
	}
	return cv
}

// stack puts curves on top of each other; those without even times are left as lines.
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
			ys[k] += cv.ys[j]
		}
		stacked[i] = curve{name: cv.name, hue: cv.hue, xs: times, ys: ys, lo: below, area: true}
		below = ys
	}
	return stacked
}
