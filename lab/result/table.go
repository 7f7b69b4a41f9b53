package result

import (
	"encoding/json"
	"math"
	"slices"
	"sort"
	"strings"
)

// Table arranges the cells of a file: the points of the matrix, in the order they ran, by the variants, by the seeds.
type Table struct {
	// Params are the names of the parameters that tell the points apart, sorted.
	Params []string
	// Points of the matrix; one without parameters if there is no matrix.
	Points []Point
	// Variants in the order they ran.
	Variants []string
	cells    map[string][]*Cell
}

// Point is one point of the matrix.
type Point struct {
	// Params are the parameters that tell it from the other points.
	Params map[string]any
	// Label is the parameters as text, e.g. "a_mbps 30, b_mbps 15"; empty if there is one point.
	Label string
}

// Stat sums up one metric over the seeds.
type Stat struct {
	// N is how many seeds there are.
	N int `json:"n"`
	// Mean over the seeds.
	Mean float64 `json:"mean"`
	// SD is the sample standard deviation over the seeds; 0 for one seed.
	SD  float64 `json:"sd"`
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// Arrange returns the table of f.
func Arrange(f *File) Table {
	return arrange(f, telling(f))
}

// Cells returns the runs of a variant at a point, one per seed, invalid ones included.
func (t Table) Cells(point int, variant string) []*Cell {
	return t.cells[t.Points[point].Label+"\x00"+variant]
}

// Find returns the point a bound or a published number with these parameters belongs to; false if it is about all.
func (t Table) Find(params map[string]any) (int, bool) {
	for i, point := range t.Points {
		if label(params, t.Params) == point.Label {
			return i, true
		}
	}
	return 0, false
}

// Metric sums up <owner>.<metric> over the valid seeds of a variant at a point; false if no seed has it.
func (t Table) Metric(point int, variant, owner, metric string) (Stat, bool) {
	var values []float64
	for _, cell := range t.Cells(point, variant) {
		if value, ok := cell.Metrics[owner][metric]; ok && cell.Invalid == "" {
			values = append(values, value)
		}
	}
	return Summarise(values), len(values) > 0
}

// Summarise returns the statistics of values.
func Summarise(values []float64) Stat {
	s := Stat{N: len(values)}
	if s.N == 0 {
		return s
	}
	s.Min, s.Max = values[0], values[0]
	for _, v := range values {
		s.Mean += v / float64(s.N)
		s.Min, s.Max = math.Min(s.Min, v), math.Max(s.Max, v)
	}
	if s.Min == s.Max {
		s.Mean = s.Min // free of rounding, so that equal runs have no spread
		return s
	}
	for _, v := range values {
		s.SD += (v - s.Mean) * (v - s.Mean) / float64(s.N-1)
	}
	s.SD = math.Sqrt(s.SD)
	return s
}

// Percentile is by nearest rank: the smallest of the sorted values, of which there must be one, that at least p percent of them do not exceed.
func Percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Text returns a parameter's value the way it is written in an experiment file. Numbers read from a file are floating
// point and those of a running experiment may be integers; both give the same text.
func Text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return string(text)
}

// varying returns the parameters that differ between two cells of the same variant, sorted.
func varying(files ...*File) []string {
	first := map[string]string{}
	differ := map[string]bool{}
	for _, f := range files {
		for i := range f.Cells {
			cell := &f.Cells[i]
			for name, value := range cell.Params {
				key := cell.Variant + "\x00" + name
				before, seen := first[key]
				if !seen {
					first[key] = Text(value)
				} else if before != Text(value) {
					differ[name] = true
				}
			}
		}
		clear(first)
	}
	names := make([]string, 0, len(differ))
	for name := range differ {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// telling returns those of the varying parameters that tell points apart. Another that follows from them may differ between
// the variants at a point. Older files do not say which are which.
func telling(files ...*File) []string {
	var matrix []string
	for _, f := range files {
		if len(f.Experiment.Matrix) == 0 {
			return varying(files...)
		}
		matrix = append(matrix, f.Experiment.Matrix...)
	}
	return slices.DeleteFunc(varying(files...), func(name string) bool { return !slices.Contains(matrix, name) })
}

func arrange(f *File, params []string) Table {
	t := Table{Params: params, cells: map[string][]*Cell{}}
	points := map[string]bool{}
	variants := map[string]bool{}
	for i := range f.Cells {
		cell := &f.Cells[i]
		name := label(cell.Params, params)
		if !points[name] {
			points[name] = true
			at := map[string]any{}
			for _, param := range params {
				at[param] = cell.Params[param]
			}
			t.Points = append(t.Points, Point{at, name})
		}
		if !variants[cell.Variant] {
			variants[cell.Variant] = true
			t.Variants = append(t.Variants, cell.Variant)
		}
		key := name + "\x00" + cell.Variant
		t.cells[key] = append(t.cells[key], cell)
	}
	return t
}

// label writes the named parameters as text.
func label(params map[string]any, names []string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + " " + Text(params[name])
	}
	return strings.Join(parts, ", ")
}
