package report

import (
	"math"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// plotCDF draws how samples are distributed: the share of them that is at most x. A panel per point of the matrix with a
// line per variant; with one variant a line per point. The seeds of a cell are pooled.
func plotCDF(s source, plot result.Plot) *figure {
	chosen := fitting(plot, names(s, sampleNames))
	fig := &figure{Title: "Distribution of " + strings.TrimSuffix(strings.ToLower(seriesTitle(chosen)), " over time"),
		csv: [][]string{{"panel", "curve", "value", "share_percent"}}}
	var titles []string
	var frames []frame
	add := func(title string, unit string, curves []curve) {
		curves = slices.DeleteFunc(curves, func(cv curve) bool { return len(cv.xs) == 0 })
		if len(curves) > 0 {
			titles = append(titles, title)
			frames = append(frames, frame{xUnit: unit, yUnit: "% of samples", curves: curves})
			for _, cv := range curves {
				for i := range cv.xs {
					fig.csv = append(fig.csv, []string{title, cv.name, number(cv.xs[i]), number(cv.ys[i])})
				}
			}
		}
	}
	for _, name := range chosen {
		owner, quantity := split(name)
		words, unit := spell(quantity)
		if len(chosen) == 1 {
			owner = ""
		}
		if len(s.table.Variants) == 1 {
			var curves []curve
			for i, point := range s.points(plot) {
				curves = append(curves, distribution(pooled(s, point, s.table.Variants[0], name), pointLabel(s.table, point), i))
			}
			add(owner, joined(words, unit), curves)
			continue
		}
		for _, point := range s.points(plot) {
			var curves []curve
			for _, variant := range s.table.Variants {
				curves = append(curves, distribution(pooled(s, point, variant, name), variant, s.variants.get(variant)))
			}
			add(joined(pointLabel(s.table, point), owner), joined(words, unit), curves)
		}
	}
	shareCDFScales(frames, plot.LogY)
	return framed(fig, titles, frames)
}

// pooled returns the samples of all valid seeds of a cell.
func pooled(s source, point int, variant, name string) []float64 {
	var values []float64
	for _, cell := range s.table.Cells(point, variant) {
		for _, samples := range cell.Samples {
			if samples.Name == name {
				values = append(values, samples.Values...)
			}
		}
	}
	return values
}

// maxSteps is how many steps of a distribution are drawn; more cannot be seen.
const maxSteps = 500

// distribution returns the empirical distribution function of values in percent, as steps.
func distribution(values []float64, name string, hue int) curve {
	cv := curve{name: name, hue: hue, step: true}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return cv
	}
	cv.xs, cv.ys = append(cv.xs, sorted[0]), append(cv.ys, 0)
	stride := max(1, n/maxSteps)
	for i := stride - 1; i < n; i += stride {
		cv.xs, cv.ys = append(cv.xs, sorted[i]), append(cv.ys, 100*float64(i+1)/float64(n))
	}
	if last := sorted[n-1]; cv.ys[len(cv.ys)-1] < 100 {
		cv.xs, cv.ys = append(cv.xs, last), append(cv.ys, 100)
	}
	return cv
}

func shareCDFScales(frames []frame, log bool) {
	type span struct{ min, max float64 }
	spans := map[string]*span{}
	for _, f := range frames {
		s := spans[f.xUnit]
		if s == nil {
			s = &span{math.Inf(1), math.Inf(-1)}
			spans[f.xUnit] = s
		}
		for _, cv := range f.curves {
			s.min, s.max = math.Min(s.min, cv.xs[0]), math.Max(s.max, cv.xs[len(cv.xs)-1])
		}
	}
	for i := range frames {
		s := spans[frames[i].xUnit]
		frames[i].x = newScale(s.min, s.max, log)
		frames[i].y = scale{min: 0, max: 100}
	}
}
