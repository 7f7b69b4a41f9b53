package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plait.dev/plait/lab/result"
)

// markAt is an instant drawn as an upright line with its text above.
type markAt struct {
	at   float64
	text string
}

// addMarks adds the marks of a variant's first valid seed. The same text within a hundredth of the run is one mark.
func addMarks(marks []markAt, cells []*result.Cell) []markAt {
	for _, cell := range cells {
		if cell.Invalid != "" {
			continue
		}
		for _, m := range cell.Marks {
			near := func(other markAt) bool {
				return other.text == m.Text && math.Abs(other.at-m.AtS) <= cell.VirtualS/100
			}
			if !slices.ContainsFunc(marks, near) {
				marks = append(marks, markAt{m.AtS, m.Text})
			}
		}
		break
	}
	slices.SortStableFunc(marks, func(a, b markAt) int { return cmp.Compare(a.at, b.at) })
	return marks
}

// layMarks distributes the texts of the marks over rows above the plot, so that none covers another and as few as
// possible are crossed by a mark's line; those without room stay without text.
func (f frame) layMarks(left, right float64) [][]markAt {
	const maxRows = 4
	x := f.x.on(left, right)
	var rows [][]markAt
	var ends []float64
	for _, m := range f.marks {
		w := textWidth(m.text, 11)
		start := markStart(x.at(m.at), w, right)
		placed := false
		for r := range rows {
			if start > ends[r]+8 {
				rows[r], ends[r], placed = append(rows[r], m), start+w, true
				break
			}
		}
		if !placed && len(rows) < maxRows {
			rows, ends = append(rows, []markAt{m}), append(ends, start+w)
		}
	}
	upside := slices.Clone(rows)
	slices.Reverse(upside)
	if crossings(upside, x) < crossings(rows, x) {
		return upside
	}
	return rows
}

// crossings counts the texts that a line from a row above goes through.
func crossings(rows [][]markAt, x scale) int {
	n := 0
	for r, row := range rows {
		for _, m := range row {
			w := textWidth(m.text, 11)
			start := markStart(x.at(m.at), w, x.to)
			for _, above := range slices.Concat(rows[:r]...) {
				n += btoi(x.at(above.at) > start && x.at(above.at) < start+w)
			}
		}
	}
	return n
}

// markStart is where the text of a mark begins: right of its line, or left of it if there is no room.
func markStart(x, w, right float64) float64 {
	if x+3+w <= right+8 {
		return x + 3
	}
	return math.Max(0, x-3-w)
}

func (f frame) drawMarks(c *canvas, rows [][]markAt, top, bottom float64) {
	from := map[markAt]float64{}
	for r, row := range rows {
		y := top - 13*float64(len(rows)-r) + 6
		for _, m := range row {
			w := textWidth(m.text, 11)
			c.text("small halo", markStart(f.x.at(m.at), w, f.x.to), y, m.text)
			from[m] = y - 9
		}
	}
	for _, m := range f.marks {
		y, ok := from[m]
		if !ok {
			y = top
		}
		c.open("", fmt.Sprintf("%s s: %s", value(m.at), m.text))
		c.line("mark", f.x.at(m.at), y, f.x.at(m.at), bottom)
		c.close()
	}
}
