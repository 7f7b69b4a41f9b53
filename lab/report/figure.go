package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// Widths a panel is drawn at, in CSS pixels: alone, beside one other, and beside two others or on a telephone.
const (
	wideW   = 1000.0
	halfW   = 500.0
	narrowW = 350.0
)

// figure is one plot: one panel, or small multiples that share their scales.
type figure struct {
	Kind, Title string
	// Note says under the figure how to read it.
	Note string
	// Base is the name of its files without ending, relative to the page.
	Base   string
	panels []panel
	// key names the curves where they could not be labelled in place.
	key []keyEntry
	csv [][]string
}

// panel draws itself at a width.
type panel struct {
	title string
	draw  func(w float64) *canvas
}

type keyEntry struct {
	name string
	hue  int
}

// source is what figures are drawn from.
type source struct {
	file  *result.File
	table result.Table
	// hues of the variants, and of anything else that is told apart by colour.
	variants, others *colours
}

func newSource(f *result.File, variants *colours) source {
	s := source{file: f, table: result.Arrange(f), variants: variants, others: &colours{}}
	for _, v := range s.table.Variants {
		variants.get(v)
	}
	return s
}

// figures draws the plots the experiment asks for, or those that suit what was measured.
func figures(s source) []*figure {
	plots := s.file.Experiment.Plots
	if len(plots) == 0 {
		plots = choose(s)
	}
	var all []*figure
	for _, plot := range plots {
		if fig := draw(s, plot); fig != nil {
			fig.Kind = plot.Kind
			if plot.Title != "" {
				fig.Title = plot.Title
			}
			all = append(all, fig)
		}
	}
	return all
}

// draw makes one figure; nil if nothing measured fits it.
func draw(s source, plot result.Plot) *figure {
	var fig *figure
	switch plot.Kind {
	case "series":
		fig = plotSeries(s, plot)
	case "cdf":
		fig = plotCDF(s, plot)
	case "bars":
		fig = plotBars(s, plot)
	case "box":
		fig = plotBox(s, plot)
	case "heat":
		fig = plotHeat(s, plot)
	}
	if fig == nil || len(fig.panels) == 0 {
		return nil
	}
	return fig
}

// names returns what list gives over all valid cells, each once, sorted.
func names(s source, list func(*result.Cell) []string) []string {
	seen := map[string]bool{}
	var all []string
	for i := range s.file.Cells {
		if cell := &s.file.Cells[i]; cell.Invalid == "" {
			for _, name := range list(cell) {
				if !seen[name] {
					seen[name] = true
					all = append(all, name)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func seriesNames(c *result.Cell) (all []string) {
	for _, s := range c.Series {
		all = append(all, s.Name)
	}
	return all
}

func sampleNames(c *result.Cell) (all []string) {
	for _, s := range c.Samples {
		all = append(all, s.Name)
	}
	return all
}

func metricNames(c *result.Cell) (all []string) {
	for owner, metrics := range c.Metrics {
		for name := range metrics {
			all = append(all, owner+"."+name)
		}
	}
	return all
}

// fitting returns the names that a plot shows, in the order of its patterns.
func fitting(plot result.Plot, all []string) []string {
	var chosen []string
	for _, pattern := range plot.Show {
		for _, name := range all {
			if match(pattern, name) && !slices.Contains(chosen, name) {
				chosen = append(chosen, name)
			}
		}
	}
	return chosen
}

// points returns the points of the matrix a plot is about.
func (s source) points(plot result.Plot) []int {
	var chosen []int
	for i, point := range s.table.Points {
		fits := len(plot.Points) == 0
		for _, limit := range plot.Points {
			same := true
			for name, want := range limit {
				if got, ok := point.Params[name]; ok && result.Text(got) != result.Text(want) {
					same = false
				}
			}
			fits = fits || same
		}
		if fits {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// columns is how many panels stand beside each other on a desktop, and how wide each is.
func (f *figure) columns() (n int, w float64) {
	switch len(f.panels) {
	case 1:
		return 1, wideW
	case 2, 4:
		return 2, halfW
	}
	return 3, narrowW
}

// HTML returns the figure for the page. Panels that are wide on a desktop are drawn a second time, for narrow windows.
func (f *figure) HTML() template.HTML {
	var out strings.Builder
	if len(f.key) > 0 {
		out.WriteString(drawKey(f.key, wideW).inline("wide", "key"))
		out.WriteString(drawKey(f.key, narrowW).inline("narrow", "key"))
	}
	n, w := f.columns()
	fmt.Fprintf(&out, `<div class="panels of%d">`, n)
	for _, p := range f.panels {
		out.WriteString("<div>")
		if p.title != "" {
			out.WriteString("<h5>" + html.EscapeString(p.title) + "</h5>")
		}
		name := joined(f.Title, p.title)
		if w == narrowW {
			out.WriteString(p.draw(narrowW).inline("", name))
		} else {
			out.WriteString(p.draw(w).inline("wide", name))
			out.WriteString(p.draw(narrowW).inline("narrow", name))
		}
		out.WriteString("</div>")
	}
	out.WriteString("</div>")
	return template.HTML(out.String())
}

// SVG returns the figure as a file of its own.
func (f *figure) SVG() []byte {
	const margin, gap = 16.0, 24.0
	columns, w := f.columns()
	whole := &canvas{w: 2*margin + float64(columns)*w + float64(columns-1)*gap}
	y := margin + 14
	whole.text("strong", margin, y, f.Title)
	y += 14
	if len(f.key) > 0 {
		key := drawKey(f.key, whole.w-2*margin)
		whole.nested(key, margin, y)
		y += key.h
	}
	for i := 0; i < len(f.panels); i += columns {
		tallest := 0.0
		for j, p := range f.panels[i:min(len(f.panels), i+columns)] {
			x := margin + float64(j)*(w+gap)
			top := y
			if p.title != "" {
				whole.text("ink", x, y+14, p.title)
				top += 20
			}
			part := p.draw(w)
			whole.nested(part, x, top)
			tallest = max(tallest, top-y+part.h)
		}
		y += tallest + 10
	}
	whole.h = y + margin - 10
	return whole.file(f.Title)
}

// CSV returns the numbers drawn.
func (f *figure) CSV() []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for _, record := range f.csv {
		_ = w.Write(result.Fields(record)) // memory takes everything
	}
	w.Flush()
	return out.Bytes()
}

// drawKey names curves in rows.
func drawKey(entries []keyEntry, w float64) *canvas {
	c := &canvas{w: w}
	x, y := 0.0, 14.0
	for _, e := range entries {
		need := 30 + textWidth(e.name, 12) + 14
		if x > 0 && x+need > w {
			x, y = 0, y+18
		}
		c.path("curve "+hue(e.hue), "M"+px(x)+" "+px(y-4)+"h22")
		c.text("ink", x+28, y, e.name)
		x += need
	}
	c.h = y + 8
	return c
}
