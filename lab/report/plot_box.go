package report

import (
	"math"
	"slices"

	"plait.dev/plait/lab/result"
)

// plotBox draws samples as boxes: the box from the first to the third quartile, the line at the median, the whiskers from
// the 5th to the 95th percentile, dots at the lowest and the highest. The seeds of a cell are pooled.
func plotBox(s source, plot result.Plot) *figure {
	chosen := fitting(plot, names(s, sampleNames))
	fig := &figure{Title: metricsTitle(chosen),
		Note: "Box: middle half, line: median, whiskers: 5 % to 95 %, dots: lowest and highest. Numbers: median, 95 %.",
		csv:  [][]string{{"samples", "point", "variant", "n", "min", "p5", "p25", "p50", "p75", "p95", "max"}}}
	points := s.points(plot)
	for _, name := range chosen {
		owner, quantity := split(name)
		words, unit := spell(quantity)
		low, high := math.Inf(1), math.Inf(-1)
		make := func(point int, variant string) (row, bool) {
			sorted := slices.Sorted(slices.Values(pooled(s, point, variant, name)))
			if len(sorted) == 0 {
				return row{}, false
			}
			low, high = math.Min(low, sorted[0]), math.Max(high, sorted[len(sorted)-1])
			return fig.box(name, s.table.Points[point].Label, variant, sorted), true
		}
		titles, groups := arrangeRows(s, points, make)
		for i := range groups {
			p := rowPanel{x: newScale(low, high, plot.LogY), unit: joined(words, unit), groups: groups[i]}
			title := titles[i]
			if len(chosen) > 1 {
				title = joined(owner+" "+words, title)
			}
			fig.panels = append(fig.panels, panel{title, p.draw})
		}
	}
	return fig
}

// box returns the row of sorted samples.
func (f *figure) box(name, point, variant string, sorted []float64) row {
	at := func(p float64) float64 { return result.Percentile(sorted, p) }
	record := []string{name, point, variant, number(float64(len(sorted)))}
	for _, p := range []float64{0, 5, 25, 50, 75, 95, 100} {
		record = append(record, number(at(p)))
	}
	f.csv = append(f.csv, record)
	draw := func(c *canvas, x scale, top, height float64) {
		mid := top + height/2
		c.line("whisker", x.at(at(5)), mid, x.at(at(25)), mid)
		c.line("whisker", x.at(at(75)), mid, x.at(at(95)), mid)
		c.line("whisker", x.at(at(5)), mid-4, x.at(at(5)), mid+4)
		c.line("whisker", x.at(at(95)), mid-4, x.at(at(95)), mid+4)
		c.rect("box", x.at(at(25)), top, math.Max(1, x.at(at(75))-x.at(at(25))), height, 2)
		c.line("median", x.at(at(50)), top, x.at(at(50)), top+height)
		c.circle("dot", x.at(at(0)), mid, 1.8)
		c.circle("dot", x.at(at(100)), mid, 1.8)
	}
	return row{notes: []rowNote{{class: "strong", text: value(at(50))}, {text: value(at(95))}}, draw: draw}
}
