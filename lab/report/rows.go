package report

import "math"

// rowPanel is a panel of horizontal rows, its names at the left and its numbers at the right: bars and boxes.
type rowPanel struct {
	x      scale
	unit   string
	groups []rowGroup
}

type rowGroup struct {
	title string
	rows  []row
}

// row is one bar or box.
type row struct {
	name string
	hue  int
	// notes are the columns of text at the right: the number first.
	notes []rowNote
	// draw paints the row into a band of the given top and height.
	draw func(c *canvas, x scale, top, height float64)
}

// rowNote is one column of the texts at the right.
type rowNote struct {
	class, text string
	// wideOnly texts are left out of narrow panels.
	wideOnly bool
}

const rowHeight = 24.0

// draw lays the panel out at a width.
func (p rowPanel) draw(w float64) *canvas {
	w = math.Min(w, 760) // longer bars say no more
	left := 0.0
	var columns []float64
	for _, g := range p.groups {
		for _, r := range g.rows {
			left = math.Max(left, textWidth(r.name, 12))
			for i, n := range r.notes {
				if i == len(columns) {
					columns = append(columns, 0)
				}
				if !n.wideOnly || w > narrowW {
					columns[i] = math.Max(columns[i], textWidth(n.text, 12))
				}
			}
		}
	}
	right := 10.0
	for i, column := range columns {
		if column > 0 {
			columns[i] += 8
			right += columns[i]
		}
	}
	left = math.Min(left, 0.36*w) + 10
	c := &canvas{w: w}
	x := p.x.on(left, w-right)
	y := 4.0
	for _, g := range p.groups {
		if g.title != "" {
			c.text("strong", 0, y+16, g.title)
			y += 20
		}
		p.grid(c, x, y-2, y+rowHeight*float64(len(g.rows))+2)
		for _, r := range g.rows {
			drawRow(c, r, x, left, y, columns)
			y += rowHeight
		}
	}
	p.numbers(c, x, y+2)
	return c
}

// grid draws the lines behind the rows of a group.
func (p rowPanel) grid(c *canvas, x scale, top, bottom float64) {
	for _, v := range x.ticks(p.ticks(x)) {
		c.line("grid", x.at(v), top, x.at(v), bottom)
	}
	c.line("axis", x.from, top, x.from, bottom)
}

func (p rowPanel) ticks(x scale) int { return int(math.Max(2, math.Min(6, (x.to-x.from)/70))) }

// numbers labels the grid below the rows.
func (p rowPanel) numbers(c *canvas, x scale, bottom float64) {
	end := math.Inf(-1)
	for _, v := range x.ticks(p.ticks(x)) {
		half := textWidth(tick(v), 12) / 2
		if x.at(v)-half > end+8 {
			c.text("mid", x.at(v), bottom+15, tick(v))
			end = x.at(v) + half
		}
	}
	c.text("end", x.to, bottom+30, p.unit)
	c.h = bottom + 36
}

func drawRow(c *canvas, r row, x scale, left, y float64, columns []float64) {
	c.text("ink end", left-8, y+16, shorten(r.name, 12, left-8))
	c.open(hue(r.hue), r.name)
	r.draw(c, x, y+4, rowHeight-8)
	c.close()
	at := x.to + 10
	for i, n := range r.notes {
		if columns[i] > 0 && n.text != "" {
			c.text(n.class, at, y+16, n.text)
		}
		at += columns[i]
	}
}

// maxRows is how many rows one panel holds before every point of the matrix gets a panel of its own.
const maxRows = 16

// arrangeRows puts one row per point and variant into panels: all points in one panel if there is room, the points as
// rows if there is one variant. make returns false for what was not measured.
func arrangeRows(s source, points []int, make func(point int, variant string) (row, bool)) (titles []string, groups [][]rowGroup) {
	if len(s.table.Variants) == 1 {
		only := rowGroup{}
		for _, point := range points {
			if r, ok := make(point, s.table.Variants[0]); ok {
				r.name = pointLabel(s.table, point)
				only.rows = append(only.rows, r)
			}
		}
		if len(only.rows) > 0 {
			titles, groups = append(titles, ""), append(groups, []rowGroup{only})
		}
		return titles, groups
	}
	var all []rowGroup
	total := 0
	for _, point := range points {
		g := rowGroup{title: pointLabel(s.table, point)}
		for _, variant := range s.table.Variants {
			if r, ok := make(point, variant); ok {
				r.name, r.hue = variant, s.variants.get(variant)
				g.rows = append(g.rows, r)
			}
		}
		if len(g.rows) > 0 {
			all, total = append(all, g), total+len(g.rows)
		}
	}
	if total == 0 {
		return nil, nil
	}
	if total <= maxRows {
		return []string{""}, [][]rowGroup{all}
	}
	for _, g := range all {
		titles = append(titles, g.title)
		g.title = ""
		groups = append(groups, []rowGroup{g})
	}
	return titles, groups
}
