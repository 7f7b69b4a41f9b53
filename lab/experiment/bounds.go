package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// group is the points a bound or published number is evaluated over together, with its parameters.
type group struct {
	points []point
	params map[string]any
}

// where are the points for which a condition holds; without one, all.
func (x *Experiment) where(when string) ([]point, error) {
	if when == "" {
		return x.points, nil
	}
	var points []point
	if x.conditions == nil { // a file may have hundreds of conditions
		for _, p := range x.points {
			x.conditions = append(x.conditions, p.paramScope(nil))
		}
	}
	for i, p := range x.points {
		scope := x.conditions[i]
		e, err := x.load.compileOver(when, scope)
		if err != nil {
			return nil, err
		}
		yes, err := e.holds(scope)
		if err != nil {
			return nil, err
		}
		if yes {
			points = append(points, p)
		}
	}
	return points, nil
}

// groups splits the points a bound applies to: one group each, or one for all.
func groups(points []point, all bool) []group {
	if all {
		return []group{{points: points}}
	}
	list := make([]group, len(points))
	for i, p := range points {
		list[i] = group{points: []point{p}, params: p.params}
	}
	return list
}

func lookup(env map[string]any, path []string) any {
	var v any = env
	for _, part := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return v
		}
		v = m[part]
	}
	return v
}

func compare(left float64, operator string, right float64) bool {
	switch operator {
	case "==":
		return left == right
	case "!=":
		return left != right
	case "<":
		return left < right
	case "<=":
		return left <= right
	case ">":
		return left > right
	}
	return left >= right
}

// ran holds the cells of a result by point, variant and seed.
type ran map[string]*result.Cell

func cellKey(params map[string]any, variant string, seed int) string {
	text, _ := json.Marshal(params) // they come from a file and can be written to one
	return fmt.Sprintf("%s %s %d", text, variant, seed)
}

// missing says why a point's numbers cannot be used: a cell that did not run or is invalid, and its seed. Empty if they can.
func (r ran) missing(p point, seeds int) (why string, of int) {
	for _, c := range p.cells {
		for seed := 1; seed <= seeds; seed++ {
			cell := r[cellKey(c.Params, c.Variant, seed)]
			if cell == nil {
				return fmt.Sprintf("the cell of variant %s, seed %d did not run", c.Variant, seed), seed
			}
			if cell.Invalid != "" {
				reason, _, _ := strings.Cut(cell.Invalid, "\n") // the list of invalid cells has all of it
				return fmt.Sprintf("the cell of variant %s, seed %d is invalid: %s", c.Variant, seed, reason), seed
			}
		}
	}
	return "", 0
}

// mean gives the mean of a metric over the seeds from the first to the last, NaN unless every one measured it.
func (r ran) mean(first, last int) func(p point) measured {
	return func(p point) measured {
		return func(variant, subject, metric string) any {
			i := slices.IndexFunc(p.cells, func(c Cell) bool { return c.Variant == variant })
			var seeds []*result.Cell
			for seed := first; seed <= last; seed++ {
				seeds = append(seeds, r[cellKey(p.cells[i].Params, variant, seed)])
			}
			if metric == everySecond {
				return meanSeconds(seeds, p.cells[i].Spec, subject)
			}
			sum := 0.0
			for _, cell := range seeds {
				value, ok := cell.Metrics[subject][metric]
				if !ok {
					return math.NaN()
				}
				sum += value
			}
			return sum / float64(len(seeds))
		}
	}
}

// wholeSeconds is the goodput of an application in every second of the timeline up to its end. The second in which it ends is none of them: of the interval in
// which it does only a part had goodput.
func wholeSeconds(cell *result.Cell, spec *Spec, app string) []float64 {
	i := slices.IndexFunc(cell.Series, func(s result.Series) bool { return s.Name == app+".goodput_mbps" })
	if i < 0 {
		return nil
	}
	seconds := cell.Series[i].PerSecond()
	const exact = 2e-6 // start_s and completion_s are in microseconds
	end := min(spec.Ended(app, cell.Metrics[app])+exact, float64(len(seconds)))
	return seconds[:int(end)]
}

// meanSeconds is wholeSeconds as the mean over cells; NaN where one has none.
func meanSeconds(cells []*result.Cell, spec *Spec, app string) []any {
	var list [][]float64
	length := 1 // so that what was not measured is seen
	for _, cell := range cells {
		seconds := wholeSeconds(cell, spec, app)
		list, length = append(list, seconds), max(length, len(seconds))
	}
	means := make([]any, length)
	for second := range means {
		sum := 0.0
		for _, seconds := range list {
			if second >= len(seconds) {
				sum = math.NaN()
				break
			}
			sum += seconds[second]
		}
		means[second] = sum / float64(len(list))
	}
	return means
}

// bound evaluates one bound over one group of points.
func (x *Experiment) bound(b Bound, g group, cells ran) result.Bound {
	r := result.Bound{Expression: b.Expect, Because: b.Because, Params: g.params}
	whole, err := x.load.compile(b.Expect)
	if err != nil {
		r.Invalid = err.Error()
		return r
	}
	left, operator, right, err := whole.comparison()
	if err != nil {
		r.Invalid = err.Error()
		return r
	}
	r.Operator = operator
	for _, p := range g.points {
		why, seed := cells.missing(p, x.Seeds)
		if why == "" {
			continue
		}
		if r.Invalid = why; b.Over == overSeed {
			r.Seed = seed // by having one it differs from the same bound on the means
		}
		return r
	}
	undecided := r
	with := func(first, last int) result.Bound {
		one, env := undecided, whole.scope(g.points, b.Over == overAll, cells.mean(first, last))
		if one.Left, err = evaluate(left, env); err == nil {
			one.Right, err = evaluate(right, env)
		}
		if err != nil {
			one.Left, one.Right, one.Invalid = 0, 0, err.Error()
			return one
		}
		one.OK = compare(one.Left, one.Operator, one.Right)
		return one
	}
	if b.Over != overSeed {
		return with(1, x.Seeds)
	}
	for seed := 1; seed <= x.Seeds; seed++ {
		if one := with(seed, seed); r.Seed == 0 || spare(one) < spare(r) {
			r, r.Seed = one, seed
		}
	}
	return r
}

const (
	overAll  = "all"
	overSeed = "seed"
)

// spare is by how much a bound holds; below 0, by how much it does not.
func spare(b result.Bound) float64 {
	switch {
	case b.Invalid != "":
		return math.Inf(-1)
	case strings.HasPrefix(b.Operator, "<"):
		return b.Right - b.Left
	case strings.HasPrefix(b.Operator, ">"):
		return b.Left - b.Right
	case b.Operator == "==":
		return -math.Abs(b.Left - b.Right)
	}
	return math.Abs(b.Left - b.Right)
}

// published evaluates the counterpart of one published number at one point; there is none if a cell is missing.
func (x *Experiment) published(paper Published, p point, cells ran) (result.Published, bool) {
	r := result.Published{Metric: paper.Metric, Params: p.params, Source: paper.Source, Published: paper.Value}
	e, err := x.load.compile(paper.Metric)
	if why, _ := cells.missing(p, x.Seeds); err != nil || why != "" {
		return r, false
	}
	r.Ours, err = evaluate(e, e.scope([]point{p}, false, cells.mean(1, x.Seeds)))
	return r, err == nil
}

// Evaluate decides every bound and puts our numbers beside published ones, over the means of the seeds or, where it is so declared, with every seed. A bound that
// needs a cell that is invalid or did not run is invalid, and does not hold.
func (x *Experiment) Evaluate(results []result.Cell) ([]result.Bound, []result.Published) {
	cells := ran{}
	for i := range results {
		cells[cellKey(results[i].Params, results[i].Variant, results[i].Seed)] = &results[i]
	}
	var bounds []result.Bound
	for _, b := range x.Spec.Bounds {
		points, _ := x.where(b.When) // checked by Load
		if len(points) == 0 {
			continue // --set left none of its points
		}
		for _, g := range groups(points, b.Over == overAll) {
			bounds = append(bounds, x.bound(b, g, cells))
		}
	}
	var papers []result.Published
	for _, paper := range x.Spec.Paper {
		points, _ := x.where(paper.When) // checked by Load
		for _, p := range points {
			if r, ok := x.published(paper, p, cells); ok {
				papers = append(papers, r)
			}
		}
	}
	return bounds, papers
}
