package experiment

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// Function is one function of the expressions.
type Function struct {
	Name string
	// Usage is a call with named arguments.
	Usage string
	// Meaning in one sentence.
	Meaning string
}

// Functions are all functions an expression may call. Those that aggregate.go does not have are the expression language's (expr-lang).
var Functions = []Function{
	{"abs", "abs(x)", "The absolute value."},
	{"all", "all(list, condition)", "Whether the condition holds for every element, which it calls #."},
	{"any", "any(list, condition)", "Whether the condition holds for at least one element."},
	{"behind", "behind(list, other)", "The most that list lacks against other over any run of elements and does not make up for in the next, up to the end of the shorter one, in means of other: of goodputs per second, by how many seconds it falls behind."},
	{"ceil", "ceil(x)", "The next integer upwards."},
	{"filter", "filter(list, condition)", "The elements for which the condition holds."},
	{"floor", "floor(x)", "The next integer downwards."},
	{"harm", "harm(alone, competing)", "The share of what a flow had alone that it loses to a competing one: 1 - competing/alone, e.g. harm(alone.file.goodput_mbps, bbr.file.goodput_mbps); for a delay the other way round."},
	{"int", "int(x)", "The integer part."},
	{"len", "len(list)", "The number of elements."},
	{"map", "map(list, expression)", "The expression's value for every element."},
	{"max", "max(x, y, ...) or max(list)", "The largest."},
	{"mean", "mean(x, y, ...) or mean(list)", "The arithmetic mean."},
	{"median", "median(x, y, ...) or median(list)", "The median."},
	{"min", "min(x, y, ...) or min(list)", "The smallest."},
	{"round", "round(x)", "The nearest integer."},
	{"sum", "sum(x, y, ...) or sum(list)", "The sum."},
}

// Words of the expression language that cannot be names.
var reservedWords = []string{
	"and", "contains", "else", "endsWith", "false", "if", "in", "let", "matches", "nil", "not", "or", "startsWith", "true",
}

func isFunction(name string) bool {
	return slices.ContainsFunc(Functions, func(f Function) bool { return f.Name == name })
}

func functionNames() []string {
	names := make([]string, len(Functions))
	for i, f := range Functions {
		names[i] = f.Name
	}
	return names
}

// expression is a compiled expression of the expression language.
type expression struct {
	tree    ast.Node
	program *vm.Program
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

// compileExpression parses an expression. Names are checked by check, against what is known where it is used.
func compileExpression(source string) (*expression, error) {
	tree, err := parser.ParseWithConfig(source, grammar)
	if err != nil {
		return nil, plain(err)
	}
	if err := checkFunctions(tree.Node); err != nil {
		return nil, err
	}
	program, err := expr.Compile(source, language...)
	if err != nil {
		return nil, plain(err)
	}
	return &expression{tree: tree.Node, program: program}, nil
}

// language is the expression language: of its built-in functions only those documented, so that the names of the others
// are free.
var language = func() []expr.Option {
	options := []expr.Option{
		expr.Function("behind", behind, new(func(list, other any) float64)),
		expr.Function("harm", harm, new(func(alone, competing any) float64)),
		expr.Function("max", aggregate(largest), new(func(values ...any) any)),
		expr.Function("mean", aggregate(mean), new(func(values ...any) any)),
		expr.Function("median", aggregate(median), new(func(values ...any) any)),
		expr.Function("min", aggregate(smallest), new(func(values ...any) any)),
		expr.Function("sum", aggregate(sum), new(func(values ...any) any)),
		expr.DisableAllBuiltins(),
	}
	for _, f := range Functions {
		options = append(options, expr.EnableBuiltin(f.Name))
	}
	return options
}()

// grammar lets functions of our own have as many arguments as they like: the language's parser knows some of their names.
var grammar = func() *conf.Config {
	c := conf.CreateNew()
	for _, option := range language {
		option(c)
	}
	return c
}()

// plain is an error of the expression language on one line.
func plain(err error) error {
	var at *file.Error
	if errors.As(err, &at) {
		return fmt.Errorf("column %d of the expression: %s", at.Column+1, at.Message)
	}
	return err
}

func number(v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	case nil:
		return math.NaN(), nil
	case []any:
		return 0, errors.New("a number is needed, not a list; take an element of it, as list[5], or a function of it, as min(list)")
	}
	return 0, fmt.Errorf("a number is needed, not %v", v)
}

// forEach calls visit for every node below and including n.
func forEach(n ast.Node, visit visitor) { ast.Walk(&n, visit) }

type visitor func(n ast.Node)

// Visit implements ast.Visitor.
func (v visitor) Visit(n *ast.Node) { v(*n) }

// checkFunctions refuses whatever is not documented, above all what depends on the time of day.
func checkFunctions(tree ast.Node) (err error) {
	forEach(tree, func(n ast.Node) {
		name := ""
		switch n := n.(type) {
		case *ast.BuiltinNode:
			name = n.Name
		case *ast.CallNode:
			name = n.Callee.String()
		case *ast.VariableDeclaratorNode, *ast.SequenceNode, *ast.MapNode:
			err = fmt.Errorf("%q is not supported here: an expression has operators, functions and names", n.String())
			return
		default:
			return
		}
		if !isFunction(name) && err == nil {
			err = fmt.Errorf("unknown function %s%s", name, suggest(name, functionNames()))
		}
	})
	return err
}

// names are the identifiers of the expression, each with the constant keys that follow it: a.forward.rate_mbps gives
// [a forward rate_mbps].
func (e *expression) names() [][]string {
	var found [][]string
	var visit func(n ast.Node, suffix []string)
	visit = func(n ast.Node, suffix []string) {
		switch n := n.(type) {
		case *ast.IdentifierNode:
			found = append(found, append([]string{n.Value}, suffix...))
		case *ast.MemberNode:
			key, constant := n.Property.(*ast.StringNode)
			if constant {
				visit(n.Node, append([]string{key.Value}, suffix...))
				return
			}
			visit(n.Node, nil)
			visit(n.Property, nil)
		case *ast.CallNode:
			for _, argument := range n.Arguments {
				visit(argument, nil)
			}
		default:
			for _, child := range children(n) {
				visit(child, nil)
			}
		}
	}
	visit(e.tree, nil)
	return found
}

// children are the nodes directly below n.
func children(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.UnaryNode:
		return []ast.Node{n.Node}
	case *ast.BinaryNode:
		return []ast.Node{n.Left, n.Right}
	case *ast.ChainNode:
		return []ast.Node{n.Node}
	case *ast.SliceNode:
		return slices.DeleteFunc([]ast.Node{n.Node, n.From, n.To}, func(n ast.Node) bool { return n == nil })
	case *ast.BuiltinNode:
		return n.Arguments
	case *ast.PredicateNode:
		return []ast.Node{n.Node}
	case *ast.ConditionalNode:
		return []ast.Node{n.Cond, n.Exp1, n.Exp2}
	case *ast.ArrayNode:
		return n.Nodes
	}
	return nil
}

// check reports the first name that scope does not know. Scope is a tree of map[string]any with values at its leaves.
func (e *expression) check(scope map[string]any) error {
	for _, name := range e.names() {
		level := scope
		for i, part := range name {
			value, ok := level[part]
			if !ok {
				hint := suggest(part, slices.Collect(maps.Keys(level)))
				if deeper := namesInside(level, name[:i+1]); len(deeper) > 0 {
					hint = "; write " + strings.Join(deeper, " or ")
				}
				if i == 0 {
					return fmt.Errorf("unknown name %s%s", part, hint)
				}
				return fmt.Errorf("%s has no %s%s", strings.Join(name[:i], "."), part, hint)
			}
			if value == any(differs{}) {
				return fmt.Errorf("%s is not the same in all variants; an expression that names variants sees what these have", strings.Join(name[:i+1], "."))
			}
			next, ok := value.(map[string]any)
			if !ok {
				break
			}
			level = next
		}
	}
	return nil
}

// namesInside are names with one more step before the last one, which level lacks and what is in it has: an application in a
// file with variants, a direction of a link. Three say enough.
func namesInside(level map[string]any, name []string) []string {
	var full []string
	before, last := name[:len(name)-1], name[len(name)-1]
	for _, step := range sortedKeys(level) {
		if inner, ok := level[step].(map[string]any); ok && inner[last] != nil && len(full) < 3 {
			full = append(full, strings.Join(slices.Concat(before, []string{step, last}), "."))
		}
	}
	return full
}

// run evaluates the expression.
func (e *expression) run(env map[string]any) (any, error) {
	v, err := expr.Run(e.program, env)
	if err != nil {
		return nil, plain(err)
	}
	return v, nil
}

// holds evaluates a condition.
func (e *expression) holds(env map[string]any) (bool, error) {
	v, err := e.run(env)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("a condition must be true or false, not %v", v)
	}
	return b, nil
}

// comparison splits the expression at the one comparison it must be.
func (e *expression) comparison() (left *expression, operator string, right *expression, err error) {
	root, ok := e.tree.(*ast.BinaryNode)
	if !ok || !slices.Contains(comparisons, root.Operator) {
		return nil, "", nil, fmt.Errorf("must be one comparison (%s) between two expressions", strings.Join(comparisons, ", "))
	}
	if left, err = compileExpression(root.Left.String()); err != nil {
		return nil, "", nil, err
	}
	right, err = compileExpression(root.Right.String())
	return left, root.Operator, right, err
}
