package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// evaluate is the number an expression has, and why there is none. A name that was not measured gives no number, also where the expression would pass
// over it: a comparison with it is false, so that a condition, and the length of what it selects, would be a number.
func evaluate(e *expression, env map[string]any) (float64, error) {
	if name := e.unmeasured(env); name != "" {
		return 0, fmt.Errorf("%s was not measured", name)
	}
	v, err := e.run(env)
	if err != nil {
		return 0, err
	}
	n, err := number(v)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%s is not a finite number", e.tree.String())
	}
	return n, nil
}

// unmeasured is the first name of the expression whose value is missing, empty if none is. Of a list, what the expression takes of it must be there.
func (e *expression) unmeasured(env map[string]any) string {
	for _, name := range e.names() {
		if absent(lookup(env, name)) {
			return strings.Join(name, ".")
		}
	}
	for _, n := range taken(e.tree) {
		part, err := compileExpression(n.String())
		if err != nil {
			continue // it depends on an element of another list
		}
		name := part.names()[0]
		v, err := part.run(env)
		if err == nil && (incomplete(v) || slices.Contains(name, everySecond) && none(v)) {
			return strings.Join(name, ".")
		}
	}
	return ""
}

// taken are the names of an expression, each with the part that is taken of it: x.second_mbps[5:].
func taken(n ast.Node) []ast.Node {
	var inner []ast.Node
	switch n := n.(type) {
	case *ast.IdentifierNode, *ast.MemberNode, *ast.SliceNode:
		return []ast.Node{n}
	case *ast.CallNode:
		inner = n.Arguments
	default:
		inner = children(n)
	}
	var found []ast.Node
	for _, child := range inner {
		found = append(found, taken(child)...)
	}
	return found
}

// absent says that a metric is missing, or all that is in a list.
func absent(v any) bool {
	if list, ok := v.([]any); ok {
		return len(list) > 0 && !slices.ContainsFunc(list, func(v any) bool { return !absent(v) })
	}
	f, ok := v.(float64)
	return ok && math.IsNaN(f)
}

// none says that a list is empty: of the seconds after the end of an application, anything may be said.
func none(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 0
}

// incomplete says that a metric, or one in a list of them, is missing.
func incomplete(v any) bool {
	if list, ok := v.([]any); ok {
		return slices.ContainsFunc(list, incomplete)
	}
	f, ok := v.(float64)
	return ok && math.IsNaN(f)
}
