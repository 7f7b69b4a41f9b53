package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"plait.dev/plait/lab/result"
)

// plotBars draws metrics as horizontal bars from zero, one per variant and point, with the seeds' standard deviation, the
// bound as a line and the paper's number as a diamond. x sorts the points by that parameter.
func plotBars(s source, plot result.Plot) *figure {
	chosen := fitting(plot, names(s, metricNames))
	fig := &figure{csv: [][]string{{"metric", "point", "variant", "seeds", "mean", "sd", "bound", "paper"}}}
	points := s.points(plot)
	if plot.X != "" {
		slices.SortStableFunc(points, func(a, b int) int {
			return compareValues(s.table.Points[a].Params[plot.X], s.table.Points[b].Params[plot.X])
		})
	}
	notes := map[string]bool{}
	for _, name := range chosen {
		owner, metric := split(name)
		words, unit := spell(metric)
		b := bars{s: s, owner: owner, metric: metric, fig: fig, notes: notes}
		b.fit(points, plot.LogY)
		titles, groups := arrangeRows(s, points, b.row)
		for i := range groups {
			p := rowPanel{x: b.x, unit: joined(words, unit), groups: groups[i]}
			title := titles[i]
			if len(chosen) > 1 {
				title = joined(owner+" "+words, title)
			}
			fig.panels = append(fig.panels, panel{title, p.draw})
		}
	}
	fig.Title = metricsTitle(chosen)
	for _, note := range []string{noteBound, notePaper, noteSD} {
		if notes[note] {
			fig.Note += note + " "
		}
	}
	return fig
}

const (
	noteBound = "Upright line: what the bound demands."
	notePaper = "Diamond: the paper's number."
	noteSD    = "±: standard deviation over the seeds."
)

// bars draws the bars of one metric.
type bars struct {
	s             source
	owner, metric string
	x             scale
	fig           *figure
	notes         map[string]bool
}

// fit finds the scale that covers all values, bounds and published numbers.
func (b *bars) fit(points []int, log bool) {
	low, high := math.Inf(1), 0.0
	cover := func(v float64) {
		if v > 0 {
			low = math.Min(low, v)
		}
		high = math.Max(high, v)
	}
	for _, point := range points {
		for _, variant := range b.s.table.Variants {
			stat, ok := b.s.table.Metric(point, variant, b.owner, b.metric)
			if !ok {
				continue
			}
			cover(stat.Mean + stat.SD)
			cover(stat.Mean)
			for _, l := range b.s.limits(point, variant, b.owner, b.metric) {
				cover(l.value)
			}
			if p, ok := b.s.published(point, variant, b.owner, b.metric); ok {
				cover(p.Published)
			}
		}
	}
	low /= 2 // the least bar can be seen on a logarithmic axis
	if !log {
		low = 0
	}
	b.x = newScale(low, high, log)
}

func (b *bars) row(point int, variant string) (row, bool) {
	stat, ok := b.s.table.Metric(point, variant, b.owner, b.metric)
	if !ok {
		return row{}, false
	}
	record := []string{b.owner + "." + b.metric, b.s.table.Points[point].Label, variant, fmt.Sprint(stat.N), number(stat.Mean), number(stat.SD), "", ""}
	measured, spreadNote, demanded, paperNote := rowNote{class: "strong", text: value(stat.Mean)}, rowNote{wideOnly: true}, rowNote{class: "good"}, rowNote{}
	if stat.N > 1 && stat.SD > 0 {
		b.notes[noteSD] = true
		spreadNote.text = spread(stat.SD)
	}
	limits := b.s.limits(point, variant, b.owner, b.metric)
	for _, l := range limits {
		b.notes[noteBound] = true
		if !l.ok {
			demanded.class = "bad"
		}
		demanded.text = joined(demanded.text, sign(l.op)+" "+value(l.value))
		record[6] = joined(record[6], l.op+" "+number(l.value))
	}
	paper, published := b.s.published(point, variant, b.owner, b.metric)
	if published {
		b.notes[notePaper] = true
		record[7] = number(paper.Published)
		paperNote.text = "paper " + value(paper.Published)
	}
	r := row{notes: []rowNote{measured, spreadNote, demanded, paperNote}}
	b.fig.csv = append(b.fig.csv, record)
	r.draw = func(c *canvas, x scale, top, height float64) {
		c.rect("bar", x.from, top, math.Max(0.5, x.at(stat.Mean)-x.from), height, 1.5)
		if stat.SD > 0 {
			mid := top + height/2
			c.line("axis", x.at(math.Max(0, stat.Mean-stat.SD)), mid, x.at(stat.Mean+stat.SD), mid)
		}
		for _, l := range limits {
			class := "limit"
			if !l.ok {
				class += " bad"
			}
			c.line(class, x.at(l.value), top-4, x.at(l.value), top+height+4)
		}
		if published {
			at, mid := x.at(paper.Published), top+height/2
			c.path("paper", fmt.Sprintf("M%s %sl5 5l-5 5l-5 -5Z", px(at), px(mid-5)))
		}
	}
	return r, true
}

// metricsTitle names the metrics of a figure.
func metricsTitle(chosen []string) string {
	title := ""
	for _, name := range chosen {
		owner, metric := split(name)
		words, _ := spell(metric)
		title = joined(title, owner+" "+words)
	}
	return capital(title)
}

// compareValues sorts numbers as numbers and the rest as text.
func compareValues(a, b any) int {
	x, y := result.Text(a), result.Text(b)
	var u, v float64
	if _, err := fmt.Sscan(x, &u); err == nil {
		if _, err := fmt.Sscan(y, &v); err == nil && u != v {
			if u < v {
				return -1
			}
			return 1
		}
	}
	if x < y {
		return -1
	}
	return btoi(x > y)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// spread writes a standard deviation: its first two digits, and no third one that it does not have.
func spread(sd float64) string {
	two := roundTo(sd, 2)
	if two >= 1 && two < 10 {
		return "±" + strconv.FormatFloat(two, 'f', 1, 64)
	}
	return "±" + value(two)
}

// roundTo keeps n significant digits.
func roundTo(v float64, n int) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', n, 64), 64)
	return rounded
}
