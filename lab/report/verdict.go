package report

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"plait.dev/plait/lab/result"
)

// verdict counts the bounds of an experiment.
type verdict struct {
	Hold, Total, InvalidCells, Cells int
	// Incomplete says what is not there; empty if all runs are.
	Incomplete string
}

func newVerdict(f *result.File) verdict {
	v := verdict{Total: len(f.Bounds), Cells: len(f.Cells)}
	if f.Incomplete != "" {
		v.Incomplete = "incomplete: " + f.Incomplete + " runs, no bound is evaluated"
	}
	for _, b := range f.Bounds {
		if b.OK {
			v.Hold++
		}
	}
	for _, c := range f.Cells {
		if c.Invalid != "" {
			v.InvalidCells++
		}
	}
	return v
}

// OK is true if every bound holds and every run is there and valid.
func (v verdict) OK() bool { return v.Hold == v.Total && v.InvalidCells == 0 && v.Incomplete == "" }

// Class is good, bad, or none where nothing was demanded.
func (v verdict) Class() string {
	switch {
	case !v.OK():
		return "bad"
	case v.Total == 0:
		return "none"
	}
	return "good"
}

func (v verdict) String() string {
	text := cmp.Or(v.Incomplete, "no bounds")
	switch {
	case v.Total == 1 && v.Hold == 1:
		text = "the bound holds"
	case v.Total == 1:
		text = "the bound fails"
	case v.Total > 1 && v.Hold == v.Total:
		text = fmt.Sprintf("all %d bounds hold", v.Total)
	case v.Total > 1:
		text = fmt.Sprintf("%d of %d bounds hold", v.Hold, v.Total)
	}
	if v.Total > 0 && v.Incomplete != "" {
		text += ", " + v.Incomplete
	}
	if v.InvalidCells > 0 {
		text += fmt.Sprintf(", %d of %s invalid", v.InvalidCells, plural(v.Cells, "run"))
	}
	return text
}

// boundGroup is one bound of the experiment file with its verdict at every point.
type boundGroup struct {
	Expression, Because string
	Hold                int
	Rows                []boundRow
}

type boundRow struct {
	Point, Left, Op, Right, Invalid string
	OK                              bool
}

// Class tells at a glance whether all of it holds.
func (g boundGroup) Class() string {
	if g.Hold == len(g.Rows) {
		return "good"
	}
	return "bad"
}

// Open shows the points at once: few of them, or some that fail.
func (g boundGroup) Open() bool { return len(g.Rows) <= 8 || g.Hold < len(g.Rows) }

func (g boundGroup) Count() string { return fmt.Sprintf("%d/%d", g.Hold, len(g.Rows)) }

// boundGroups gathers the bounds by expression and reason, in order: what is demanded twice, at other points or with every seed, may have two.
func boundGroups(s source) []*boundGroup {
	var groups []*boundGroup
	of := map[[2]string]*boundGroup{}
	for _, b := range s.file.Bounds {
		key := [2]string{b.Expression, b.Because}
		g := of[key]
		if g == nil {
			g = &boundGroup{Expression: b.Expression, Because: b.Because}
			of[key] = g
			groups = append(groups, g)
		}
		where := ""
		if point, ok := s.table.Find(b.Params); ok {
			where = pointLabel(s.table, point)
		} else if len(s.table.Points) > 1 {
			where = "over all points"
		}
		if b.Seed > 0 {
			where = strings.TrimPrefix(fmt.Sprintf("%s, seed %d", where, b.Seed), ", ")
		}
		left, right := sides(b)
		g.Rows = append(g.Rows, boundRow{where, left, sign(b.Operator), right, b.Invalid, b.OK})
		g.Hold += btoi(b.OK)
	}
	return groups
}

// invalidRun is a run without numbers.
type invalidRun struct {
	Point string
	*result.Cell
}

func invalidRuns(s source) []invalidRun {
	var runs []invalidRun
	for i := range s.file.Cells {
		cell := &s.file.Cells[i]
		if cell.Invalid == "" {
			continue
		}
		where := ""
		if point, ok := s.table.Find(cell.Params); ok {
			where = pointLabel(s.table, point)
		}
		runs = append(runs, invalidRun{where, cell})
	}
	return runs
}

// sides writes both sides of a bound with as many digits as tell them apart: of two that look the same, who is told that one is larger cannot see why.
func sides(b result.Bound) (left, right string) {
	for _, digits := range []int{5, 8, -1} {
		if left, right = side(b.Left, digits), side(b.Right, digits); left != right || b.Left == b.Right {
			break
		}
	}
	return left, right
}

// side writes a number with so many significant digits, a whole one with all it has.
func side(v float64, digits int) string {
	if v == math.Trunc(v) {
		digits = -1
	}
	if a := math.Abs(v); a >= 1e5 && a < 1e15 { // without an exponent, and nothing before the point is rounded away
		return strconv.FormatFloat(v, 'f', min(digits, 0), 64)
	}
	return strconv.FormatFloat(v, 'g', digits, 64)
}

// paperRow compares a published number with ours.
type paperRow struct {
	Metric, Point, Published, Ours, Ratio, Source string
}

func paperRows(s source) []paperRow {
	var rows []paperRow
	for _, p := range s.file.Paper {
		r := paperRow{Metric: p.Metric, Published: value(p.Published), Ours: value(p.Ours), Ratio: "–", Source: p.Source}
		if point, ok := s.table.Find(p.Params); ok {
			r.Point = pointLabel(s.table, point)
		}
		if p.Published != 0 {
			r.Ratio = fmt.Sprintf("%.2f", p.Ours/p.Published)
		}
		rows = append(rows, r)
	}
	return rows
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
