package report

import (
	"math"
	"slices"
	"strconv"

	"plait.dev/plait/lab/result"
)

// plotHeat draws a metric as a table of two parameters, darker for more, a panel per variant. Without y the rows are the
// variants. Cells for which a bound on the metric fails have a red frame.
func plotHeat(s source, plot result.Plot) *figure {
	chosen := fitting(plot, names(s, metricNames))
	fig := &figure{Title: metricsTitle(chosen), csv: [][]string{{"metric", "point", "variant", "mean"}}}
	for _, name := range chosen {
		tables := heatTables(s, plot, name)
		low, high := math.Inf(1), math.Inf(-1)
		for _, h := range tables {
			for _, cell := range h.cells {
				low, high = math.Min(low, cell.mean), math.Max(high, cell.mean)
				if cell.failed {
					fig.Note = "Red frame: a bound on this number does not hold."
				}
			}
		}
		for _, h := range tables {
			h.low, h.high, h.log = low, high, plot.LogY
			title := h.title
			if len(chosen) > 1 {
				title = joined(name, title)
			}
			fig.panels = append(fig.panels, panel{title, h.draw})
			fig.csv = append(fig.csv, h.csv...)
		}
	}
	return fig
}

// heatTable is one panel.
type heatTable struct {
	title, xTitle, yTitle string
	xs, ys                []string
	cells                 map[[2]string]heatCell
	low, high             float64
	log                   bool
	csv                   [][]string
}

type heatCell struct {
	mean   float64
	failed bool
}

// heatTables collects the panels: one per variant and combination of the remaining parameters.
func heatTables(s source, plot result.Plot, name string) []*heatTable {
	var tables []*heatTable
	byTitle := map[string]*heatTable{}
	owner, metric := split(name)
	_, unit := spell(metric)
	apart := offAxes(s, plot)
	for _, point := range s.points(plot) {
		params := s.table.Points[point].Params
		rest := ""
		for _, p := range apart {
			rest = joined(rest, withUnit(p, params[p]))
		}
		for _, variant := range s.table.Variants {
			stat, ok := s.table.Metric(point, variant, owner, metric)
			if !ok {
				continue
			}
			title, y, yTitle := joined(variantTitle(s, variant), rest), "", axisTitle(plot.Y)
			if plot.Y == "" {
				title, y, yTitle = rest, variant, ""
			} else {
				y = result.Text(params[plot.Y])
			}
			title = joined(title, unit)
			h := byTitle[title]
			if h == nil {
				h = &heatTable{title: title, xTitle: axisTitle(plot.X), yTitle: yTitle, cells: map[[2]string]heatCell{}}
				byTitle[title] = h
				tables = append(tables, h)
			}
			x := result.Text(params[plot.X])
			h.xs, h.ys = include(h.xs, x), include(h.ys, y)
			failed := slices.ContainsFunc(s.limits(point, variant, owner, metric), func(l limit) bool { return !l.ok })
			h.cells[[2]string{x, y}] = heatCell{stat.Mean, failed}
			h.csv = append(h.csv, []string{name, s.table.Points[point].Label, variant, number(stat.Mean)})
		}
	}
	for _, h := range tables {
		sortNumbers(h.xs)
		if plot.Y != "" {
			sortNumbers(h.ys)
		}
	}
	return tables
}

// offAxes returns the parameters that tell panels apart: those not along an axis but those that change with what is, as they do
// where the matrix lets several go together.
func offAxes(s source, plot result.Plot) []string {
	return slices.DeleteFunc(slices.Clone(s.table.Params), func(name string) bool {
		values, at, follows := map[string]bool{}, map[[2]string]string{}, true
		for _, point := range s.points(plot) {
			params := s.table.Points[point].Params
			place, value := [2]string{result.Text(params[plot.X]), result.Text(params[plot.Y])}, result.Text(params[name])
			before, known := at[place]
			follows = follows && (!known || before == value)
			values[value], at[place] = true, value
		}
		return name == plot.X || name == plot.Y || follows && len(values) > 1
	})
}

func axisTitle(param string) string {
	words, unit := spell(param)
	return joined(words, unit)
}

func include(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// sortNumbers sorts texts that are all numbers by value, and leaves others as they came.
func sortNumbers(list []string) {
	of := map[string]float64{}
	for _, s := range list {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return
		}
		of[s] = v
	}
	slices.SortFunc(list, func(a, b string) int { return compareValues(of[a], of[b]) })
}

// draw lays the table out at a width.
func (h *heatTable) draw(w float64) *canvas {
	const rowH = 26.0
	left := 0.0
	for _, y := range h.ys {
		left = math.Max(left, textWidth(y, 12))
	}
	left += 8
	c := &canvas{w: w}
	top := 20.0
	cellW := math.Min(88, (w-left)/float64(len(h.xs)))
	if h.yTitle != "" {
		c.text("", 0, 12, h.yTitle)
	}
	for row, y := range h.ys {
		c.text("end ink", left-8, top+float64(row)*rowH+17, y)
		for col, x := range h.xs {
			cell, ok := h.cells[[2]string{x, y}]
			if !ok {
				continue
			}
			h.drawCell(c, cell, left+float64(col)*cellW, top+float64(row)*rowH, cellW-2, rowH-2)
		}
	}
	bottom := top + rowH*float64(len(h.ys))
	for col, x := range h.xs {
		c.text("mid ink", left+(float64(col)+0.5)*cellW-1, bottom+14, x)
	}
	c.text("end", left+cellW*float64(len(h.xs))-2, bottom+30, h.xTitle)
	c.w, c.h = math.Min(w, left+cellW*float64(len(h.xs))), bottom+36
	return c
}

// drawCell colours a cell by where its value lies between the lowest and the highest of the figure.
func (h *heatTable) drawCell(c *canvas, cell heatCell, x, y, w, height float64) {
	share := 0.0
	if h.log && h.low > 0 && h.high > h.low {
		share = math.Log(cell.mean/h.low) / math.Log(h.high/h.low)
	} else if h.high > h.low {
		share = (cell.mean - h.low) / (h.high - h.low)
	}
	opacity := 0.06 + 0.86*share
	c.body.WriteString(`<g fill-opacity="` + strconv.FormatFloat(opacity, 'f', 2, 64) + `">`)
	c.rect("heat", x, y, w, height, 2)
	c.close()
	if cell.failed {
		c.rect("outline", x+1, y+1, w-2, height-2, 2)
	}
	class := "mid dark"
	if opacity > 0.55 {
		class = "mid light"
	}
	c.text(class, x+w/2, y+16, value(cell.mean))
}
