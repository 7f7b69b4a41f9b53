package experiment

import (
	"cmp"
	"errors"
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
		err = x.try(b.Expect, groups(points, b.Over == overAll), b.Over == overAll, true)
		if err == nil && len(points) > 0 && !x.measures(b.Expect, points[0]) {
			err = errors.New("names no metric: what is measured cannot change whether it holds; compare a metric, such as APPLICATION.goodput_mbps, with it")
		}
		report(join(path, "expect"), err)
	}
	for i, p := range x.Spec.Paper {
		path := join("paper", strconv.Itoa(i))
		points, err := x.where(p.When)
		report(join(path, "when"), err)
		report(join(path, "metric"), x.try(p.Metric, groups(points, false), false, false))
	}
	for i, plot := range x.Spec.Plots {
		x.checkPlot(plot, join("plots", strconv.Itoa(i)), report)
	}
}

// ones is a result in which every number is 1.
func ones(_, _, metric string) any {
	if metric == everySecond {
		return everySecondOne
	}
	return 1.0
}

// measures says that an expression that was found to be right names something that is measured at the point.
func (x *Experiment) measures(source string, p point) bool {
	e, err := x.load.compile(source)
	metrics := p.metricScope(ones)
	return err == nil && slices.ContainsFunc(e.names(), func(name []string) bool { return lookup(metrics, name) != nil })
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
	one := func(point) measured { return ones }
	var first error
	var where []string
	for _, g := range all {
		if len(g.points) == 0 {
			continue
		}
		if err := e.checkSeconds(g.points); err != nil {
			return err
		}
		env := e.scope(g.points, lists, one)
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
	if err := side.checkElements(env); err != nil {
		return err
	}
	v, err := side.run(env)
	if err != nil {
		return err
	}
	_, err = number(v)
	return err
}
