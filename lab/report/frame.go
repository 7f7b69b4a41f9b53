package report

import (
	"math"
	"slices"
	"strings"
)

// curve is one line of a panel, in the units of its axes.
type curve struct {
	name   string
	hue    int
	xs, ys []float64
	// lo and hi bound the band around the line; empty for none.
	lo, hi []float64
	// parts of a series are the parts of the runs that have a value there.
	parts []float64
	// thin lines carry no label: further seeds of a curve.
	thin bool
	// step holds each value until the next one.
	step bool
	// area fills between the line of the curve below (lo) and this one.
	area bool
}

// frame is a panel with two axes of numbers: series and CDFs.
type frame struct {
	x, y         scale
	xUnit, yUnit string
	curves       []curve
	marks        []markAt
	// labels at the curves; otherwise the figure has a key.
	labels bool
}

const axisSize = 12.0

// draw lays the panel out at a width.
func (f frame) draw(w float64) *canvas {
	height := math.Min(260, math.Max(190, w*0.42))
	c := &canvas{w: w}
	left := 0.0
	for _, v := range f.y.ticks(5) {
		left = math.Max(left, textWidth(tick(v), axisSize))
	}
	left += 8
	rows := f.layMarks(left, w-8)
	top := 24 + 13*float64(len(rows))
	bottom := top + height - 48
	f.x, f.y = f.x.on(left, w-8), f.y.on(bottom, top)
	c.h = bottom + 34
	f.axes(c, left, bottom, w)
	f.drawMarks(c, rows, top, bottom)
	for _, cv := range f.curves {
		f.drawCurve(c, cv)
	}
	if f.labels {
		f.drawLabels(c, left, top, bottom, w)
	}
	return c
}

// axes draws the horizontal grid, both axes' numbers, the unit of y above and that of x at the end.
func (f frame) axes(c *canvas, left, bottom, w float64) {
	for _, v := range f.y.ticks(5) {
		y := f.y.at(v)
		class := "grid"
		if v == f.y.min {
			class = "axis"
		}
		c.line(class, left, y, w-8, y)
		c.text("end", left-6, y+4, tick(v))
	}
	c.text("", 0, 12, f.yUnit)
	end := -100.0
	for _, v := range f.x.ticks(int(math.Max(3, (w-left)/80))) {
		x, text := f.x.at(v), tick(v)
		half := textWidth(text, axisSize) / 2
		if x-half < end+8 {
			continue
		}
		end = x + half
		c.line("axis", x, bottom, x, bottom+4)
		if x > w-20 {
			c.text("end", w, bottom+17, text)
		} else {
			c.text("mid", x, bottom+17, text)
		}
	}
	c.text("end", w-8, bottom+31, f.xUnit)
}

func (f frame) drawCurve(c *canvas, cv curve) {
	c.open(hue(cv.hue), cv.name)
	defer c.close()
	line := f.pixels(cv, cv.ys)
	if len(cv.lo) > 0 {
		class := "band"
		if cv.area {
			class = "area"
		}
		low := f.pixels(cv, cv.lo)
		slices.Reverse(low)
		high := line
		if !cv.area {
			high = f.pixels(cv, cv.hi)
		}
		c.path(class, pathOf(append(slices.Clone(high), low...))+"Z")
	}
	class := "curve"
	if cv.thin {
		class += " thin"
	}
	if cv.hue >= hues {
		class += " dash"
	}
	if !cv.area {
		c.path(class, pathOf(line))
	}
}

// pixels returns a curve's points on the panel. Of many points in one column of pixels only the first, lowest, highest
// and last are kept: the line looks the same.
func (f frame) pixels(cv curve, ys []float64) [][2]float64 {
	var all [][2]float64
	for i, v := range ys {
		x, y := f.x.at(cv.xs[i]), f.y.at(v)
		if cv.step && i > 0 {
			all = append(all, [2]float64{x, all[len(all)-1][1]})
		}
		all = append(all, [2]float64{x, y})
	}
	if float64(len(all)) < 3*(f.x.to-f.x.from) {
		return all
	}
	var kept [][2]float64
	for i := 0; i < len(all); {
		j, low, high := i, i, i
		for ; j < len(all) && int(all[j][0]) == int(all[i][0]); j++ {
			if all[j][1] < all[low][1] {
				low = j
			}
			if all[j][1] > all[high][1] {
				high = j
			}
		}
		of := []int{i, low, high, j - 1}
		slices.Sort(of)
		for _, k := range slices.Compact(of) {
			kept = append(kept, all[k])
		}
		i = j
	}
	return kept
}

func (f frame) drawLabels(c *canvas, left, top, bottom, w float64) {
	spots, names, ok := f.findLabels(left, top, bottom, w)
	if !ok {
		return
	}
	for i, spot := range spots {
		c.open(hue(names[i].hue), names[i].name)
		class := "label"
		if names[i].area {
			class = "inside"
		}
		c.text(class, spot.x, spot.y, names[i].name)
		c.close()
	}
}

// findLabels places the names of the curves; false if they do not fit.
func (f frame) findLabels(left, top, bottom, w float64) ([]labelSpot, []curve, bool) {
	r := newRaster(left, top-6, w-left, bottom-top+4)
	for _, m := range f.marks {
		x := f.x.at(m.at)
		r.trace([][2]float64{{x, top}, {x, bottom}}, len(f.curves)+1)
	}
	var lines, areas []curve
	var texts []string
	var points [][][2]float64
	var inside []labelSpot
	for _, cv := range f.curves {
		line := f.pixels(cv, cv.ys)
		switch {
		case cv.thin:
			r.trace(line, len(f.curves)+1)
		case cv.area:
			spot, ok := placeInside(line, f.pixels(cv, cv.lo), cv.name)
			if !ok {
				return nil, nil, false
			}
			areas, inside = append(areas, cv), append(inside, spot)
		default:
			lines, texts, points = append(lines, cv), append(texts, cv.name), append(points, line)
		}
	}
	spots, ok := placeLabels(r, texts, points)
	return append(inside, spots...), append(areas, lines...), ok
}

// canLabel reports whether the names fit beside the curves at a width.
func (f frame) canLabel(w float64) bool {
	left := 40.0
	f.x, f.y = f.x.on(left, w-8), f.y.on(200, 20)
	_, _, ok := f.findLabels(left, 20, 200, w)
	return ok
}

// framed turns frames into a figure: names at the curves if they fit in every panel, else one key for all.
func framed(fig *figure, titles []string, frames []frame) *figure {
	w := narrowW
	labels := true
	for _, f := range frames {
		labels = labels && f.canLabel(w)
	}
	seen := map[string]bool{}
	for i, f := range frames {
		f.labels = labels && len(named(f.curves)) > 1
		if !labels {
			for _, cv := range named(f.curves) {
				if !seen[cv.name] {
					seen[cv.name] = true
					fig.key = append(fig.key, keyEntry{cv.name, cv.hue})
				}
			}
		}
		fig.panels = append(fig.panels, panel{titles[i], f.draw})
	}
	return fig
}

func named(curves []curve) (all []curve) {
	for _, cv := range curves {
		if !cv.thin {
			all = append(all, cv)
		}
	}
	return all
}

func pathOf(points [][2]float64) string {
	var d strings.Builder
	for i, p := range points {
		if i == 0 {
			d.WriteString("M")
		} else {
			d.WriteString("L")
		}
		d.WriteString(px(p[0]) + " " + px(p[1]))
	}
	return d.String()
}
