package result

import (
	"fmt"
	"math"
	"strings"
)

// Verdicts on one metric.
const (
	Same     = "same"
	Within   = "within spread"
	Changed  = "changed"
	NoSpread = "differs, no spread known"
)

// Report says what differs between two result files.
type Report struct {
	// Provenance lists what was not the same about the runs: command, kernel, versions, parameters that are constant in
	// each file, and whether it is incomplete.
	Provenance []Change `json:"provenance"`
	// Cells that are not in both files, or valid in only one.
	Cells []Change `json:"cells"`
	// Bounds whose verdict changed, or that are in one file only.
	Bounds []Change `json:"bounds"`
	// OnlyOne lists metrics of cells both files have that only one of them has.
	OnlyOne []Change `json:"only_one"`
	// Metrics are all metrics both files have, at every point and variant both have.
	Metrics []MetricChange `json:"metrics"`
}

// Change is one thing that is not the same in both files.
type Change struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// MetricChange compares one metric over the seeds.
type MetricChange struct {
	// Point of the matrix, as text.
	Point   string `json:"point"`
	Variant string `json:"variant"`
	// Metric is <owner>.<metric>.
	Metric string `json:"metric"`
	A      Stat   `json:"a"`
	B      Stat   `json:"b"`
	// Verdict: same (within 1e-9 of the value), within spread, changed (the means are further apart than those of equal
	// seeds are in 19 of 20 comparisons, by Welch's t), or "differs, no spread known" if one file has a single seed.
	Verdict string `json:"verdict"`
}

// Diff compares two result files of one experiment. Cells are matched by variant and by the parameters that vary within
// either file; parameters that are constant in both but not the same are reported as provenance.
func Diff(a, b *File) Report {
	params := telling(a, b)
	ta, tb := arrange(a, params), arrange(b, params)
	r := Report{Provenance: provenance(a, b, params), Cells: []Change{}, Bounds: bounds(a, b, params), OnlyOne: []Change{}, Metrics: []MetricChange{}}
	for _, k := range union(cellKeys(ta), cellKeys(tb)) {
		ca, cb := ta.cells[k], tb.cells[k]
		point, variant, _ := strings.Cut(k, "\x00")
		if sa, sb := state(ca, a), state(cb, b); sa != sb {
			r.Cells = append(r.Cells, Change{strings.TrimPrefix(point+", "+variant, ", "), sa, sb})
		}
		va, vb := collect(ca), collect(cb)
		if len(va) == 0 || len(vb) == 0 {
			continue // said by the cells
		}
		for _, metric := range union(keys(va), keys(vb)) {
			if inA, inB := va[metric] != nil, vb[metric] != nil; !inA || !inB {
				where := strings.TrimPrefix(point+", "+variant+", "+metric, ", ")
				r.OnlyOne = append(r.OnlyOne, Change{where, presence(inA), presence(inB)})
				continue
			}
			sa, sb := Summarise(va[metric]), Summarise(vb[metric])
			r.Metrics = append(r.Metrics, MetricChange{point, variant, metric, sa, sb, verdict(sa, sb)})
		}
	}
	return r
}

func presence(there bool) string {
	if there {
		return "present"
	}
	return "absent"
}

// quantiles are those of Student's t distribution at 0.975, for 1 and more degrees of freedom.
var quantiles = [...]float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23}

// farApart is how many standard errors two means are apart by chance in one of twenty comparisons, with so many degrees of freedom.
func farApart(freedom float64) float64 {
	if n := max(int(freedom), 1); n < len(quantiles) {
		return quantiles[n-1] + (quantiles[n]-quantiles[n-1])*(freedom-float64(n))
	}
	return 1.96 + 2.5/freedom // within 0.02
}

// verdict compares two means (Welch 1947). The standard error of their difference is sqrt(sdA^2/nA + sdB^2/nB).
func verdict(a, b Stat) string {
	difference := math.Abs(a.Mean - b.Mean)
	va, vb := a.SD*a.SD/float64(a.N), b.SD*b.SD/float64(b.N)
	freedom := (va + vb) * (va + vb) / (va*va/float64(a.N-1) + vb*vb/float64(b.N-1))
	switch {
	case difference <= 1e-9*math.Max(math.Abs(a.Mean), math.Abs(b.Mean)):
		return Same
	case a.N < 2 || b.N < 2:
		return NoSpread
	case va+vb == 0 || difference > farApart(freedom)*math.Sqrt(va+vb):
		return Changed
	}
	return Within
}

// provenance compares what is constant in each file.
func provenance(a, b *File, varying []string) []Change {
	changes := []Change{}
	add := func(what, a, b string) {
		if a != b {
			changes = append(changes, Change{what, a, b})
		}
	}
	add("experiment", a.Experiment.Name, b.Experiment.Name)
	add("incomplete", or(a.Incomplete, "no"), or(b.Incomplete, "no"))
	pa, pb := a.Provenance, b.Provenance
	add("command", pa.Command, pb.Command)
	add("seeds", fmt.Sprint(pa.Seeds), fmt.Sprint(pb.Seeds))
	add("kernel", pa.Kernel, pb.Kernel)
	add("image", pa.Image, pb.Image)
	add("plait", pa.Plait, pb.Plait)
	add("qemu", pa.QEMU, pb.QEMU)
	for _, name := range union(recordings(a), recordings(b)) {
		if ra, rb := pa.recording(name), pb.recording(name); ra != "" && rb != "" { // which there are, the cells say
			add("recording "+name, ra, rb)
		}
	}
	add("clock base", pa.ClockBase, pb.ClockBase)
	if a.Experiment.Source != b.Experiment.Source {
		changes = append(changes, Change{"experiment file", "its text", "another text"})
	}
	varies := map[string]bool{}
	for _, name := range varying {
		varies[name] = true
	}
	ca, cb := constants(a), constants(b)
	for _, key := range union(keys(ca), keys(cb)) {
		variant, name, _ := strings.Cut(key, "\x00")
		if !varies[name] && has(cb, variant) && has(ca, variant) {
			add("parameter "+name+" of "+variant, ca[key], cb[key])
		}
	}
	return changes
}

// recordings are the names of those that a file's links replay.
func recordings(f *File) []string {
	var names []string
	for _, r := range f.Provenance.Recordings {
		names = append(names, r.File)
	}
	return names
}

// recording is the digest of the one of that name, empty if there is none.
func (p Provenance) recording(name string) string {
	for _, r := range p.Recordings {
		if r.File == name {
			return r.SHA256
		}
	}
	return ""
}

// constants returns the parameters of each variant's first cell, by variant and name.
func constants(f *File) map[string]string {
	values := map[string]string{}
	for _, cell := range f.Cells {
		if has(values, cell.Variant) {
			continue
		}
		values[cell.Variant+"\x00"] = ""
		for name, value := range cell.Params {
			values[cell.Variant+"\x00"+name] = Text(value)
		}
	}
	return values
}

func has(values map[string]string, variant string) bool {
	_, ok := values[variant+"\x00"]
	return ok
}

// bounds returns the bounds whose verdict is not the same.
func bounds(a, b *File, params []string) []Change {
	changes := []Change{}
	va, vb := verdicts(a, params), verdicts(b, params)
	for _, key := range union(boundKeys(a, params), boundKeys(b, params)) {
		if va[key] != vb[key] {
			changes = append(changes, Change{key, or(va[key], "absent"), or(vb[key], "absent")})
		}
	}
	return changes
}

func verdicts(f *File, params []string) map[string]string {
	said := map[string]string{}
	for i, key := range boundKeys(f, params) {
		switch bound := f.Bounds[i]; {
		case bound.Invalid != "":
			said[key] = "invalid: " + bound.Invalid
		case bound.OK:
			said[key] = "holds"
		default:
			said[key] = "fails"
		}
	}
	return said
}

func boundKeys(f *File, params []string) []string {
	names := make([]string, len(f.Bounds))
	for i, bound := range f.Bounds {
		var told []string
		for _, param := range params {
			if _, ok := bound.Params[param]; ok {
				told = append(told, param)
			}
		}
		names[i] = bound.Expression
		if bound.Seed > 0 { // the same may be demanded of the means
			names[i] += " with every seed"
		}
		if len(told) > 0 {
			names[i] += " at " + label(bound.Params, told)
		}
	}
	return names
}

// state says in words what a group of seeds of f is. An incomplete file has not all of them.
func state(cells []*Cell, f *File) string {
	invalid := ""
	valid := 0
	for _, cell := range cells {
		if cell.Invalid == "" {
			valid++
		} else if invalid == "" {
			invalid = fmt.Sprintf("; seed %d is invalid: %s", cell.Seed, cell.Invalid)
		}
	}
	seeds := max(len(f.Provenance.Seeds), len(cells))
	switch {
	case len(cells) == 0:
		return "absent"
	case valid == seeds:
		return "valid"
	}
	return fmt.Sprintf("%d of %d seeds valid%s", valid, seeds, invalid)
}

// collect gathers each metric's values over the valid seeds.
func collect(cells []*Cell) map[string][]float64 {
	values := map[string][]float64{}
	for _, cell := range cells {
		if cell.Invalid != "" {
			continue
		}
		for owner, metrics := range cell.Metrics {
			for metric, value := range metrics {
				values[owner+"."+metric] = append(values[owner+"."+metric], value)
			}
		}
	}
	return values
}

// cellKeys returns the keys of t.cells in the order the cells ran.
func cellKeys(t Table) []string {
	var names []string
	for _, point := range t.Points {
		for _, variant := range t.Variants {
			if key := point.Label + "\x00" + variant; t.cells[key] != nil {
				names = append(names, key)
			}
		}
	}
	return names
}

// union returns a and what b has beyond it, in order.
func union(a, b []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, name := range append(a[:len(a):len(a)], b...) {
		if !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
