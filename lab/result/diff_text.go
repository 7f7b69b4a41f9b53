package result

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Comparable is an error if the files have no cell in common.
func (r Report) Comparable() error {
	if len(r.Metrics)+len(r.OnlyOne) > 0 {
		return nil
	}
	return errors.New("compare results: the files have no valid cell in common (variant and parameters); give two runs of one experiment")
}

// WriteText prints the report for a terminal: what changed, and of the rest only how much there is. Files with no cell in
// common are an error.
func (r Report) WriteText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	changes(out, "provenance", r.Provenance)
	changes(out, "cells", r.Cells)
	changes(out, "bounds", r.Bounds)
	changes(out, "metrics in one file only", r.OnlyOne)
	count := map[string]int{}
	header := "metrics\tA\tB\tB - A\n"
	for _, m := range r.Metrics {
		count[m.Verdict]++
		if m.Verdict != Changed && m.Verdict != NoSpread {
			continue
		}
		fmt.Fprint(out, header)
		header = ""
		where := strings.TrimPrefix(strings.Join([]string{m.Point, m.Variant, m.Metric}, ", "), ", ")
		fmt.Fprintf(out, "  %s\t%s\t%s\t%s%s\n", where, spread(m.A), spread(m.B), relative(m), note(m.Verdict))
	}
	if header == "" {
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := r.Comparable(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d metrics compared: %d changed beyond the spread of the seeds, %d differ with no spread known, %d within the spread, %d the same\n",
		len(r.Metrics), count[Changed], count[NoSpread], count[Within], count[Same])
	return err
}

func changes(w io.Writer, title string, list []Change) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\tA\tB\n", title)
	for _, c := range list {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", c.What, c.A, c.B)
	}
	fmt.Fprintln(w)
}

// spread writes a mean with the standard deviation over the seeds.
func spread(s Stat) string {
	if s.N < 2 {
		return fmt.Sprintf("%.4g", s.Mean)
	}
	return fmt.Sprintf("%.4g ±%.2g (n=%d)", s.Mean, s.SD, s.N)
}

// relative writes the difference in percent of A, or as it is if A is 0.
func relative(m MetricChange) string {
	if m.A.Mean == 0 {
		return fmt.Sprintf("%+.4g", m.B.Mean)
	}
	return fmt.Sprintf("%+.1f %%", 100*(m.B.Mean-m.A.Mean)/math.Abs(m.A.Mean))
}

func note(verdict string) string {
	if verdict == Changed {
		return ""
	}
	return "\t" + verdict
}
