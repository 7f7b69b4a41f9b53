package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is where something stands in a file. Line and Column count from 1. Line 0 is a place without lines, such as a --set; Column 0 is one of which the
// YAML parser told the line only.
type Place struct {
	File   string
	Line   int
	Column int
}

// String is file:line:column, the form editors and terminals can jump to.
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one mistake in an experiment.
type Problem struct {
	Place Place
	// Path is where the mistake is in terms of the file's keys, e.g. links.a.rate_mbps. Empty for the file as a whole.
	Path string
	// Text says what is wrong and, where it can be said, what to write instead.
	Text string
}

func (p Problem) Error() string {
	if p.Path == "" {
		return fmt.Sprintf("%s: %s", p.Place, p.Text)
	}
	return fmt.Sprintf("%s: %s: %s", p.Place, p.Path, p.Text)
}

// Problems are all mistakes found in an experiment, in the order of the file, each once.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

func (p *Problems) add(place Place, path, format string, args ...any) {
	*p = append(*p, Problem{Place: place, Path: path, Text: fmt.Sprintf(format, args...)})
}

// sorted is in the order of the file; a mistake that shows in many cells counts once.
func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(
			strings.Compare(a.Place.File, b.Place.File),
			cmp.Compare(a.Place.Line, b.Place.Line),
			cmp.Compare(a.Place.Column, b.Place.Column),
			strings.Compare(a.Path, b.Path),
			strings.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(p)
}

// suggest is "; did you mean x?" for the closest of the known names, or nothing if none is close.
func suggest(name string, known []string) string {
	best, distance := "", max(1, (len(name)+1)/3)+1
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := editDistance(name, candidate); d < distance && d < max(len(name), len(candidate)) {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance is the number of characters to insert, delete, replace or swap with their neighbour to make b out of a
// (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
