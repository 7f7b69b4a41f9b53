package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"plait.dev/plait/lab/result"
)

// Summary prints the result for a terminal: the question, the main metrics of every variant at every point of the matrix,
// and the verdict on each bound. Variants that do not fit side by side into width columns stand below each other. With
// colour it uses the terminal's green, red and bold.
func Summary(w io.Writer, f *result.File, width int, colour bool) error {
	s := newSource(f, &colours{})
	p := &printer{colour: colour}
	fmt.Fprintf(&p.out, "%s: %s\n\n", p.paint(bold, f.Experiment.Name), f.Experiment.Question)
	p.lead(s, width)
	p.bounds(s)
	p.invalid(s)
	v := newVerdict(f)
	fmt.Fprintln(&p.out, p.paint(verdictColour(v.OK()), v.String()))
	_, err := io.WriteString(w, p.out.String())
	return err
}

// Codes of the terminal's colours (ECMA-48, SGR).
const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func verdictColour(ok bool) string {
	if ok {
		return green
	}
	return red
}

// printer writes text with or without colours.
type printer struct {
	out    strings.Builder
	colour bool
}

func (p *printer) paint(code, s string) string {
	if !p.colour || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// textCell is one cell of a table: colour codes take no room.
type textCell struct{ text, code string }

// maxLines is how long the table of the terminal may get before it shows means over the matrix.
const maxLines = 40

// lead prints a table per metric with a column per variant, or, if that is too wide, one table with a row per variant.
func (p *printer) lead(s source, width int) {
	l := newLead(s)
	if len(l.Metrics) == 0 {
		return
	}
	var tables [][][]textCell
	lines := 0
	fits := true
	for m := range l.Metrics {
		table := wideTable(l, m)
		fits = fits && tableWidth(table) <= width
		tables, lines = append(tables, table), lines+len(table)
	}
	if !fits {
		tables = [][][]textCell{longTable(l)}
		lines = len(tables[0])
	}
	if lines > maxLines && len(l.Rows) > 1 {
		over := plural(len(l.Rows), "point")
		for _, m := range mainMetrics(s) {
			if _, points := s.means(m); points < len(l.Rows) {
				over = fmt.Sprintf("those of %d points that all variants have", len(l.Rows))
			}
		}
		fmt.Fprintf(&p.out, "mean over %s; the report has them all\n", over)
		p.table(longTable(newLeadMean(s)), 1)
		return
	}
	for m, table := range tables {
		left := len(l.Params)
		if fits {
			fmt.Fprintln(&p.out, l.Metrics[m])
		} else {
			left++
		}
		p.table(table, left)
	}
}

func plainCells(texts []string) []textCell {
	cells := make([]textCell, len(texts))
	for i, text := range texts {
		cells[i].text = text
	}
	return cells
}

func wideTable(l lead, metric int) [][]textCell {
	head := plainCells(l.Params)
	for _, v := range l.Variants {
		head = append(head, textCell{v.Name, ""})
	}
	table := [][]textCell{head}
	for _, r := range l.Rows {
		line := plainCells(r.Params)
		for _, cell := range r.Cells[metric] {
			line = append(line, cell.forText())
		}
		table = append(table, line)
	}
	return table
}

func longTable(l lead) [][]textCell {
	table := [][]textCell{plainCells(append(append(append([]string{}, l.Params...), "variant"), l.Metrics...))}
	for _, r := range l.Rows {
		for i, v := range l.Variants {
			line := plainCells(append(append([]string{}, r.Params...), v.Name))
			if i > 0 {
				clear(line[:len(r.Params)])
			}
			for _, cells := range r.Cells {
				line = append(line, cells[i].forText())
			}
			table = append(table, line)
		}
	}
	return table
}

func (c leadCell) forText() textCell {
	switch {
	case c.Invalid != "":
		return textCell{"invalid", red}
	case c.Value == "":
		return textCell{"-", ""}
	case c.Best:
		return textCell{strings.TrimSpace(c.Value + " " + c.SD), bold}
	case c.Few != "":
		return textCell{strings.TrimSpace(c.Value+" "+c.SD) + " (" + c.Few + ")", ""}
	}
	return textCell{strings.TrimSpace(c.Value + " " + c.SD), ""}
}

func columnWidths(table [][]textCell) []int {
	widths := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.text))
		}
	}
	return widths
}

func tableWidth(table [][]textCell) int {
	sum := 0
	for _, w := range columnWidths(table) {
		sum += 2 + w
	}
	return sum
}

// table prints rows with the first columns aligned left and the others, the numbers, right.
func (p *printer) table(table [][]textCell, left int) {
	widths := columnWidths(table)
	for _, line := range table {
		for i, cell := range line {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.text))
			text := p.paint(cell.code, cell.text)
			switch {
			case i >= left:
				text = gap + text
			case i+1 < len(line):
				text += gap
			}
			p.out.WriteString("  " + text)
		}
		p.out.WriteByte('\n')
	}
	p.out.WriteByte('\n')
}

// bounds prints a line per bound, and one per point at which it does not hold.
func (p *printer) bounds(s source) {
	for _, g := range boundGroups(s) {
		mark := "✓"
		if g.Hold < len(g.Rows) {
			mark = "✗"
		}
		fmt.Fprintf(&p.out, "%s %s  (%s)\n", p.paint(verdictColour(g.Hold == len(g.Rows)), mark), g.Expression, g.Count())
		for _, r := range g.Rows {
			if r.OK {
				continue
			}
			said := fmt.Sprintf("%s %s %s does not hold", r.Left, r.Op, r.Right)
			if r.Invalid != "" {
				said = r.Invalid
			}
			fmt.Fprintf(&p.out, "    %s\n", strings.TrimPrefix(r.Point+": "+said, ": "))
		}
	}
}

// invalid lists the runs without numbers.
func (p *printer) invalid(s source) {
	for _, r := range invalidRuns(s) {
		fmt.Fprintf(&p.out, "%s %s: %s\n", p.paint(red, "invalid"), joined(r.Point, r.Variant, fmt.Sprintf("seed %d", r.Seed)), r.Invalid)
	}
}
