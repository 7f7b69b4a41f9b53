package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checkExpressions tries every bound, published number and plot before anything runs: each must apply somewhere, name
// only what exists where it applies, and give a number when every metric is 1.
func (x *Experiment) checkExpressions() {
	l := x.load
	report := func(path string, err error) {
		if err != nil {
			l.problems.add(l.tree.find(strings.Split(path, ".")), path, "%v", err)
		}
	}
	for i, b := range x.Spec.Bounds {
		path := join("bounds", strconv.Itoa(i))
		points, err := x.where(b.When)
		report(join(path, "when"), err)
		if err == nil && len(points) == 0 && len(l.opt.Set) == 0 {
			report(path, fmt.Errorf("applies at no point of the matrix"))
		}
		report(join(path, "expect"), x.try(b.Expect, groups(points, b.Over == overAll), b.Over == overAll, true))
	}
	for i, p := range x.Spec.Paper {
		path := join("paper", strconv.Itoa(i))
		points, err := x.where(p.When)
		report(join(path, "when"), err)
		report(join(path, "metric"), x.try(p.Metric, groups(points, false), false, false))
	}
	for i, plot := range x.Spec.Plots {
		path := join("plots", strconv.Itoa(i))
		_, err := x.where(plot.When)
		report(join(path, "when"), err)
		report(join(path, "x"), x.checkAxis(plot.X))
		report(join(path, "y"), x.checkAxis(plot.Y))
		for j, show := range plot.Show {
			report(fmt.Sprintf("%s.show.%d", path, j), x.checkShown(show))
		}
	}
}

// try evaluates an expression over each group with all metrics at 1.
func (x *Experiment) try(source string, all []group, lists, comparison bool) error {
	e, err := x.load.compile(source)
	if err != nil {
		return err
	}
	sides := []*expression{e}
	if comparison {
		left, _, right, err := e.comparison()
		if err != nil {
			return err
		}
		sides = []*expression{left, right}
	}
	one := func(point) measured { return func(string, string, string) float64 { return 1 } }
	var first error
	var where []string
	for _, g := range all {
		if len(g.points) == 0 {
			continue
		}
		env := scope(g.points, lists, one)
		for _, side := range sides {
			if err := x.trySide(side, env); err != nil {
				first = cmp.Or(first, err)
				where = append(where, g.points[0].name())
				break
			}
		}
	}
	if len(where) > 0 && len(where) < len(all) {
		return fmt.Errorf("%w at %s; limit it with when", first, where[0])
	}
	return first
}

func (x *Experiment) trySide(side *expression, env map[string]any) error {
	for _, name := range side.names() {
		x.load.used[name[0]] = true
	}
	if err := side.check(env); err != nil {
		return err
	}
	v, err := side.run(env)
	if err != nil {
		return err
	}
	_, err = number(v)
	return err
}

// checkAxis reports an axis of a plot that is not a parameter of the matrix.
func (x *Experiment) checkAxis(name string) error {
	if name == "" {
		return nil
	}
	x.load.used[name] = true
	var all []string
	for _, axis := range x.Axes {
		all = append(all, axis.Names...)
	}
	if slices.Contains(all, name) || len(x.load.opt.Set) > 0 {
		return nil
	}
	return fmt.Errorf("%s is not a parameter of the matrix%s", name, suggest(name, all))
}

// checkShown reports a metric or series of something that does not exist; * stands for anything.
func (x *Experiment) checkShown(show string) error {
	subject, _, ok := strings.Cut(show, ".")
	if !ok {
		return fmt.Errorf("%s is not of the form name.metric", show)
	}
	subject, _, _ = strings.Cut(subject, "/") // a subflow
	if strings.Contains(subject, "*") {
		return nil
	}
	var all []string
	for _, p := range x.points {
		for _, cell := range p.cells {
			metrics := cell.Spec.Metrics()
			if metrics[subject] != nil {
				return nil
			}
			all = append(all, sortedKeys(metrics)...)
		}
	}
	if len(x.load.opt.Set) > 0 { // it may be at the points that --set left out
		return nil
	}
	return fmt.Errorf("there is nothing called %s%s", subject, suggest(subject, all))
}
