package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// mostSeconds is how long a list of seconds is while nothing has been measured: no application lasts so long, and every element that a bound names must be there.
const mostSeconds = 10_000

// everySecondOne is the list of a result in which every number is 1.
var everySecondOne = slices.Repeat([]any{1.0}, mostSeconds)

// checkSeconds reports the goodput in every second where intervals of the series do not make up seconds: one would be counted in the second in which it ends.
func (e *expression) checkSeconds(points []point) error {
	named := slices.ContainsFunc(e.names(), func(name []string) bool { return slices.Contains(name, everySecond) })
	for _, p := range points {
		for _, cell := range p.cells {
			if m := cell.Spec.Measure; named && !m.hasSeconds() {
				return fmt.Errorf("%s needs a measure.every_ms that is a divisor of 1000, not %d", everySecond, m.EveryMs)
			}
		}
	}
	return nil
}

// checkElements reports an element that is taken of what is no list; the expression language would tell it in terms of its own.
func (e *expression) checkElements(scope map[string]any) (err error) {
	forEach(e.tree, func(n ast.Node) {
		taken, ok := n.(*ast.MemberNode)
		if !ok || err != nil {
			return
		}
		if _, key := taken.Property.(*ast.StringNode); key {
			return
		}
		switch taken.Node.(type) {
		case *ast.IdentifierNode, *ast.MemberNode:
		default:
			return // what a function gives
		}
		name := (&expression{tree: taken.Node}).names()[0]
		whole := strings.Join(name, ".")
		switch lookup(scope, name).(type) {
		case map[string]any:
			err = fmt.Errorf("%s is no list, so that it has no element %s", whole, taken.Property)
		case float64, int:
			err = fmt.Errorf("%s is one number, no list: it has no element %s; the goodput in every second of an application is its %s", whole, taken.Property, everySecond)
		}
	})
	return err
}
