package result

import (
	"encoding/csv"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// MetricsCSV writes every metric of every valid cell: the parameters, variant, seed, owner, metric, value; one number per line.
func MetricsCSV(w io.Writer, f *File) error {
	return rows(w, f, []string{"owner", "metric", "value"}, func(cell *Cell, row func(...string)) {
		for _, owner := range keys(cell.Metrics) {
			for _, metric := range keys(cell.Metrics[owner]) {
				row(owner, metric, number(cell.Metrics[owner][metric]))
			}
		}
	})
}

// SeriesCSV writes every series of every valid cell: the parameters, variant, seed, series, unit, time_s, value.
func SeriesCSV(w io.Writer, f *File) error {
	return rows(w, f, []string{"series", "unit", "time_s", "value"}, func(cell *Cell, row func(...string)) {
		for _, s := range cell.Series {
			for i, value := range s.Values {
				row(s.Name, s.Unit, number(s.Time(i)), number(value))
			}
		}
	})
}

// SamplesCSV writes every sample of every valid cell: the parameters, variant, seed, samples, unit, index (from 0), value.
func SamplesCSV(w io.Writer, f *File) error {
	return rows(w, f, []string{"samples", "unit", "index", "value"}, func(cell *Cell, row func(...string)) {
		for _, s := range cell.Samples {
			for i, value := range s.Values {
				row(s.Name, s.Unit, strconv.Itoa(i), number(value))
			}
		}
	})
}

// Time returns the time of value i in seconds, rounded to a microsecond.
func (s *Series) Time(i int) float64 {
	if s.StepS == 0 {
		return s.TimesS[i]
	}
	at, _ := strconv.ParseFloat(strconv.FormatFloat(s.StartS+float64(i)*s.StepS, 'f', 6, 64), 64)
	return at
}

// rows writes the header and what each gives for the valid cells, behind the columns that tell the cell.
func rows(w io.Writer, f *File, columns []string, each func(cell *Cell, row func(...string))) error {
	params := varying(f)
	out := csv.NewWriter(w)
	out.Write(Fields(append(append(append([]string{}, params...), "variant", "seed"), columns...)))
	for i := range f.Cells {
		cell := &f.Cells[i]
		if cell.Invalid != "" {
			continue
		}
		var head []string
		for _, param := range params {
			head = append(head, Text(cell.Params[param]))
		}
		head = append(head, cell.Variant, strconv.Itoa(cell.Seed))
		each(cell, func(fields ...string) { out.Write(Fields(append(head[:len(head):len(head)], fields...))) })
	}
	out.Flush()
	return out.Error()
}

// Fields are the fields of a record of CSV, of which no spreadsheet takes one for a formula: what begins like one and is no number gets an apostrophe before it. A result
// file may be anybody's.
func Fields(fields []string) []string {
	safe := slices.Clone(fields)
	for i, field := range fields {
		if !strings.ContainsAny(field[:min(len(field), 1)], "=+-@\t\r") {
			continue
		}
		if _, err := strconv.ParseFloat(field, 64); err != nil {
			safe[i] = "'" + field
		}
	}
	return safe
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// keys returns the keys of m, sorted.
func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
