// Package table makes a set of R-TCP's tables from result files of the experiments rtcp-table-loss and
// rtcp-table-bottleneck. docs/congestion/rtcp.md describes the files. Run its tests with
//
//	go test ./lab/table
package table

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// candidates are the algorithms R-TCP chooses among, by the names the experiments give variants or applications.
var candidates = []string{"bic", "cubic", "highspeed", "htcp", "hybla", "reno", "scalable", "vegas", "westwood"}

// quantity is where a cell has a number, and what makes the file's unit of the cell's.
type quantity struct {
	heading     string
	owner, name string // a metric's, with * for the candidate; a parameter has no owner
	factor      float64
}

var rtt = quantity{"rtt_ms", "", "rtt_ms", 1}

// tables are the three of a set.
var tables = []struct {
	file, experiment string
	entry, value     quantity
}{
	{"nonburst_latency.csv", "rtcp-table-loss", quantity{"nonburst_loss_rate", "", "loss_percent", 0.01}, quantity{"latency_s", "screen", "mean_ms", 0.001}},
	{"bottleneck.csv", "rtcp-table-bottleneck", quantity{"bottleneck_kbps", "", "rate_mbps", 1000}, quantity{"burst_loss_rate_percent", "yardstick", "*_p_b_percent", 1}},
	{"burst_latency.csv", "rtcp-table-bottleneck", quantity{"bottleneck_kbps", "", "rate_mbps", 1000}, quantity{"latency_s", "*", "mean_ms", 0.001}},
}

// of is the quantity in a cell, in the cell's unit.
func (q quantity) of(c *result.Cell, candidate string) (float64, error) {
	owner, name := strings.ReplaceAll(q.owner, "*", candidate), strings.ReplaceAll(q.name, "*", candidate)
	x, ok := c.Metrics[owner][name]
	if q.owner == "" {
		x, ok = c.Params[name].(float64)
	}
	if !ok {
		return 0, fmt.Errorf("the run with %v, %s, seed %d has no %s; %s", c.Params, c.Variant, c.Seed, name,
			cmp.Or(c.Invalid, "run the experiment of this version of plait"))
	}
	return x, nil
}

// place is where a value belongs in a table, in units of the experiment.
type place struct {
	rttMs, entry float64
	candidate    string
}

// found is what the seeds have at a place, and the parameters of all of them.
type found struct {
	params map[string]any
	values []float64
}

// collect adds a cell's values to their places, one for each seed.
func collect(all map[place]found, c *result.Cell, entry, value quantity) error {
	for _, candidate := range candidates {
		if slices.Contains(candidates, c.Variant) && c.Variant != candidate {
			continue // the cell is of another; without such a variant it is of all
		}
		rttMs, err1 := rtt.of(c, candidate)
		x, err2 := entry.of(c, candidate)
		y, err3 := value.of(c, candidate)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return err
		}
		at := place{rttMs, x, candidate}
		before, ok := all[at]
		if ok && !reflect.DeepEqual(before.params, c.Params) {
			return fmt.Errorf("of %s there are runs with %v and with %v, whose mean says nothing; leave one of them out", candidate, before.params, c.Params)
		}
		all[at] = found{c.Params, append(before.values, y)}
	}
	return nil
}

// axis is the values of one part of the places, ascending.
func axis(all map[place]found, of func(place) float64) []float64 {
	set := map[float64]bool{}
	for at := range all {
		set[of(at)] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// format is the table as text. rtcp reads it only if every round trip has the same entries, each with all candidates.
func format(all map[place]found, entry, value quantity) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s,%s,algorithm,%s\n", rtt.heading, entry.heading, value.heading)
	for _, rttMs := range axis(all, func(p place) float64 { return p.rttMs }) {
		for _, x := range axis(all, func(p place) float64 { return p.entry }) {
			for _, candidate := range candidates {
				seeds := all[place{rttMs, x, candidate}].values
				if len(seeds) == 0 {
					return "", fmt.Errorf("there is no run of %s with rtt_ms %g and %s %g; run that as well, or leave out all runs with this rtt_ms or this %s",
						candidate, rttMs, entry.name, x, entry.name)
				}
				var sum float64
				for _, y := range seeds {
					sum += y
				}
				fmt.Fprintf(&out, "%g,%.6g,%s,%.6g\n", rttMs, x*entry.factor, candidate, sum/float64(len(seeds))*value.factor)
			}
		}
	}
	return out.String(), nil
}

// kernel is the one that all results are of.
func kernel(files []*result.File) (string, error) {
	for _, f := range files {
		if f.Provenance.Kernel != files[0].Provenance.Kernel {
			return "", fmt.Errorf("make tables: the results are of kernel %s and of kernel %s; a set is of one", files[0].Provenance.Kernel, f.Provenance.Kernel)
		}
	}
	return files[0].Provenance.Kernel, nil
}

// Write makes the directory and in it the three files of the set. Where several seeds or files have a value, their mean is taken.
func Write(dir string, files []*result.File) error {
	kernel, err := kernel(files)
	if err != nil {
		return err
	}
	texts := make([]string, len(tables)) // first all that can be wrong with the results, or DIR would have half a set
	for i, t := range tables {
		all := map[place]found{}
		for _, f := range files {
			if f.Experiment.Name != t.experiment {
				continue
			}
			if f.Incomplete != "" {
				return fmt.Errorf("make %s: a result file of %s is incomplete, it has %s runs; finish it with `plait lab run %[2]s --json FILE --resume`",
					t.file, t.experiment, f.Incomplete)
			}
			for i := range f.Cells {
				if err := collect(all, &f.Cells[i], t.entry, t.value); err != nil {
					return fmt.Errorf("make %s of %s: %w", t.file, t.experiment, err)
				}
			}
		}
		if len(all) == 0 {
			return fmt.Errorf("make %s: no result file is of %s; make one with `plait lab run %s --json FILE`", t.file, t.experiment, t.experiment)
		}
		text, err := format(all, t.entry, t.value)
		if err != nil {
			return fmt.Errorf("make %s of %s: %w", t.file, t.experiment, err)
		}
		texts[i] = fmt.Sprintf("# Linux %s, by experiment %s (docs/congestion/rtcp.md).\n%s", kernel, t.experiment, text)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	for i, t := range tables {
		if err := os.WriteFile(filepath.Join(dir, t.file), []byte(texts[i]), 0o644); err != nil {
			return fmt.Errorf("make tables: %w", err)
		}
	}
	return nil
}
