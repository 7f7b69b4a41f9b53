package experiment

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// bindings are the values of the parameters in one cell. A value may itself refer to parameters; it is worked out when it
// is first asked for.
type bindings struct {
	load  *loader
	raw   map[string]*node
	done  map[string]*node
	under []string // parameters being worked out, to find circles
}

func newBindings(load *loader, raw map[string]*node) *bindings {
	return &bindings{load: load, raw: raw, done: map[string]*node{}}
}

// parameter is the value of a parameter with all parameters in it replaced.
func (b *bindings) parameter(name string) (*node, error) {
	b.load.used[name] = true
	if n, ok := b.done[name]; ok {
		return n, nil
	}
	raw, ok := b.raw[name]
	if !ok {
		return nil, fmt.Errorf("unknown parameter %s%s", name, suggest(name, slices.Collect(maps.Keys(b.raw))))
	}
	if slices.Contains(b.under, name) {
		return nil, fmt.Errorf("the parameters %s refer to each other in a circle", strings.Join(append(b.under, name), " -> "))
	}
	b.under = append(b.under, name)
	n := b.substitute(raw, join("parameter", name))
	b.under = b.under[:len(b.under)-1]
	b.done[name] = n
	return n, nil
}

// values are all parameters as Go values.
func (b *bindings) values() map[string]any {
	values := make(map[string]any, len(b.raw))
	for _, name := range slices.Sorted(maps.Keys(b.raw)) {
		used := b.load.used[name]
		if n, err := b.parameter(name); err == nil {
			values[name] = n.value()
		}
		b.load.used[name] = used
	}
	return values
}

// evaluate runs an expression over the parameters.
func (b *bindings) evaluate(source string) (any, error) {
	e, err := b.load.compile(source)
	if err != nil {
		return nil, err
	}
	env := map[string]any{}
	for _, name := range e.names() {
		n, err := b.parameter(name[0])
		if err != nil {
			return nil, err
		}
		env[name[0]] = n.value()
	}
	return e.run(env)
}

// substitute is the tree with every parameter replaced by its value. A key whose value becomes null is left out.
func (b *bindings) substitute(n *node, path string) *node {
	switch n.kind {
	case yaml.MappingNode:
		copied := *n
		copied.fields = nil
		for _, f := range n.fields {
			value := b.substitute(f.value, join(path, f.key))
			if value.null() && !f.value.null() {
				copied.from = f.value.text // it is not written without it
				continue
			}
			copied.fields = append(copied.fields, field{f.key, f.place, value})
		}
		return &copied
	case yaml.SequenceNode:
		copied := *n
		copied.items = make([]*node, len(n.items))
		for i, item := range n.items {
			copied.items[i] = b.substitute(item, join(path, strconv.Itoa(i)))
		}
		return &copied
	}
	if n.tag != tagString || !strings.Contains(n.text, "$") {
		return n
	}
	replaced, err := b.scalar(n)
	if err != nil {
		b.load.problems.add(n.place, path, "%s: %v", n.text, err)
		return &node{place: n.place, kind: yaml.ScalarNode, tag: tagNull, from: n.text}
	}
	return replaced
}

// scalar replaces the parameters in one string: a value that is nothing but one parameter or expression keeps its type.
func (b *bindings) scalar(n *node) (*node, error) {
	parts, err := splitDollars(n.text)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, part := range parts {
		value := part.literal
		if part.code != "" {
			v, err := b.part(n.place, part)
			if err != nil {
				return nil, err
			}
			if len(parts) == 1 {
				copied := *v
				copied.from = n.text
				return &copied, nil
			}
			if v.kind != yaml.ScalarNode {
				return nil, fmt.Errorf("%s is a %s and cannot be part of a string", part.code, v.kindName())
			}
			value = v.text
		}
		text.WriteString(value)
	}
	return &node{place: n.place, kind: yaml.ScalarNode, tag: tagString, text: text.String(), from: n.text}, nil
}

func (b *bindings) part(place Place, p dollarPart) (*node, error) {
	if p.name {
		return b.parameter(p.code)
	}
	v, err := b.evaluate(p.code)
	if err != nil {
		return nil, err
	}
	return valueNode(place, v)
}

// dollarPart is a piece of a string: literal text, or the code of a parameter (name) or expression.
type dollarPart struct {
	literal string
	code    string
	name    bool
}

var parameterName = regexp.MustCompile(`^[a-z][a-z0-9_]*`)

// splitDollars finds $name, $(expression) and $$. Any other dollar, above all $NAME in capitals for the shell, is text.
func splitDollars(s string) ([]dollarPart, error) {
	var parts []dollarPart
	literal := ""
	flush := func() {
		if literal != "" {
			parts = append(parts, dollarPart{literal: literal})
		}
		literal = ""
	}
	for s != "" {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			literal += s
			break
		}
		literal += s[:i]
		s = s[i+1:]
		name := parameterName.FindString(s)
		switch {
		case s[0] == '$':
			literal, s = literal+"$", s[1:]
		case name != "":
			flush()
			parts, s = append(parts, dollarPart{code: name, name: true}), s[len(name):]
		case s[0] == '(':
			end := closingParenthesis(s)
			if end < 0 {
				return nil, fmt.Errorf("$( is not closed; write $$( for the shell's own $(command)")
			}
			if end == 1 {
				return nil, fmt.Errorf("$() holds no expression; write $$() if the dollar is meant as such")
			}
			flush()
			parts, s = append(parts, dollarPart{code: s[1:end]}), s[end+1:]
		default:
			literal += "$"
		}
	}
	flush()
	return parts, nil
}

// closingParenthesis is the index of the parenthesis that closes s[0], or -1. Those in quotes do not count.
func closingParenthesis(s string) int {
	depth, quote := 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' {
				continue
			}
			if c == quote && s[i-1] != '\\' {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}
