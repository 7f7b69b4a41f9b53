package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/internal/badyaml"
)

// node is a value of a YAML file that remembers where it stands. Nodes are shared between trees and never changed once
// they are in one; what changes a tree copies the way down to it.
type node struct {
	place  Place
	kind   yaml.Kind // MappingNode, SequenceNode or ScalarNode
	tag    string    // of a scalar: !!str, !!int, !!float, !!bool, !!null
	text   string    // of a scalar, as it is written
	from   string    // what a parameter's value was written as, e.g. $rate; of a mapping also what was written of a key that is left out
	fields []field   // of a mapping, in order
	items  []*node   // of a sequence
}

// field is one entry of a mapping.
type field struct {
	key   string
	place Place // of the key
	value *node
}

const (
	tagString = "!!str"
	tagInt    = "!!int"
	tagNull   = "!!null"
)

// octal is what old YAML reads to base 8, and people do not.
var octal = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// parseYAML reads a file of one mapping. The tree is nil if there is none; else it can be used in spite of problems.
func parseYAML(file string, text []byte) (*node, Problems) {
	var problems Problems
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		problems.add(Place{File: file, Line: 1, Column: 1}, "", "the file is empty")
		return nil, problems
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			problems.add(Place{File: file, Line: second.Line, Column: second.Column}, "", "a second YAML document starts here; a file is one experiment")
			return nil, problems
		}
	}
	if !errors.Is(err, io.EOF) {
		line, column, cause := badyaml.Where(text, err)
		problems.add(Place{File: file, Line: line, Column: column}, "", "%s", cause)
		return nil, problems
	}
	root := newNode(file, document.Content[0], "", &problems)
	if root.kind != yaml.MappingNode {
		problems.add(root.place, "", "the file must be a mapping of keys and values; it is a %s", root.kindName())
		return nil, problems
	}
	return root, problems
}

// newNode copies a YAML node. Anchors and aliases are refused: they would give one value two places, and parameters do
// their work.
func newNode(file string, y *yaml.Node, path string, problems *Problems) *node {
	n := &node{place: Place{File: file, Line: y.Line, Column: y.Column}, kind: y.Kind, tag: y.ShortTag(), text: y.Value}
	switch y.Kind {
	case yaml.AliasNode:
		problems.add(n.place, path, "aliases are not supported; use a parameter")
		n.kind, n.tag = yaml.ScalarNode, tagNull
	case yaml.MappingNode:
		for i := 0; i+1 < len(y.Content); i += 2 {
			key, value := y.Content[i], y.Content[i+1]
			place := Place{File: file, Line: key.Line, Column: key.Column}
			switch {
			case key.Kind != yaml.ScalarNode:
				problems.add(place, path, "a key must be a name")
			case n.get(key.Value) != nil:
				problems.add(place, join(path, key.Value), "the key is given twice")
			default:
				n.fields = append(n.fields, field{key.Value, place, newNode(file, value, join(path, key.Value), problems)})
			}
		}
	case yaml.SequenceNode:
		for i, item := range y.Content {
			n.items = append(n.items, newNode(file, item, join(path, strconv.Itoa(i)), problems))
		}
	default:
		if f, ok := n.value().(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			problems.add(n.place, path, "%s is not a finite number", n.text)
			n.tag = tagNull
		}
		if v := n.value(); n.tag == tagInt && octal.MatchString(n.text) {
			problems.add(n.place, path, "%s is %v in YAML: write it without the zero, or in quotes if it is text", n.text, v)
		}
	}
	return n
}

// valueNode makes a node of a computed value.
func valueNode(place Place, value any) (*node, error) {
	var y yaml.Node
	if err := y.Encode(value); err != nil {
		return nil, fmt.Errorf("use %v as a value: %w", value, err)
	}
	var problems Problems
	n := newNode(place.File, &y, "", &problems)
	if len(problems) > 0 {
		return nil, errors.New(problems[0].Text)
	}
	if f, ok := value.(float64); ok {
		n.text = strconv.FormatFloat(f, 'f', -1, 64) // in a command, 2000000 and not 2e+06
	}
	n.move(place)
	return n, nil
}

// move gives a tree nobody else holds yet one place.
func (n *node) move(place Place) {
	n.place = place
	for i := range n.fields {
		n.fields[i].place = place
		n.fields[i].value.move(place)
	}
	for _, item := range n.items {
		item.move(place)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// get is the value of a key, nil if there is none.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].key == key {
			return n.fields[i].value
		}
	}
	return nil
}

// string is the text of a key's scalar value, empty if there is none.
func (n *node) string(key string) string {
	if v := n.get(key); v != nil && !v.null() {
		return v.text
	}
	return ""
}

// keys are the keys of a mapping in order.
func (n *node) keys() []string {
	if n == nil {
		return nil
	}
	keys := make([]string, len(n.fields))
	for i, f := range n.fields {
		keys[i] = f.key
	}
	return keys
}

// with is the mapping with one key replaced or added.
func (n *node) with(key string, place Place, value *node) *node {
	copied := *n
	copied.fields = slices.Clone(n.fields)
	for i := range copied.fields {
		if copied.fields[i].key == key {
			copied.fields[i] = field{key, place, value}
			return &copied
		}
	}
	copied.fields = append(copied.fields, field{key, place, value})
	return &copied
}

// only is the mapping without the keys for which keep is false.
func (n *node) only(keep func(key string) bool) *node {
	copied := *n
	copied.fields = slices.DeleteFunc(slices.Clone(n.fields), func(f field) bool { return !keep(f.key) })
	return &copied
}

// merge is base with over's entries added; where both have a key, mappings are merged and anything else is over's.
func merge(base, over *node) *node {
	if base.kind == yaml.MappingNode && over.null() {
		return base
	}
	if base.kind != yaml.MappingNode || over.kind != yaml.MappingNode {
		return over
	}
	copied := *base
	merged := &copied
	merged.place = over.place
	for _, f := range over.fields {
		value := f.value
		if b := base.get(f.key); b != nil {
			value = merge(b, f.value)
		}
		merged = merged.with(f.key, f.place, value)
	}
	return merged
}

// find is the place of the path's last part that exists: of its key in a mapping, of the item in a sequence.
func (n *node) find(path []string) Place {
	place := n.place
	for _, part := range path {
		switch n.kind {
		case yaml.MappingNode:
			i := slices.IndexFunc(n.fields, func(f field) bool { return f.key == part })
			if i < 0 {
				return place
			}
			place, n = n.fields[i].place, n.fields[i].value
		case yaml.SequenceNode:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(n.items) {
				return place
			}
			n = n.items[i]
			place = n.place
		default:
			return place
		}
	}
	return place
}

// descend is the value at a path, nil if there is none.
func (n *node) descend(path []string) *node {
	for _, part := range path {
		if n == nil {
			return nil
		}
		if i, err := strconv.Atoi(part); n.kind == yaml.SequenceNode && err == nil && i >= 0 && i < len(n.items) {
			n = n.items[i]
		} else {
			n = n.get(part)
		}
	}
	return n
}

// null says that there is no value.
func (n *node) null() bool { return n.kind == yaml.ScalarNode && n.tag == tagNull }

// value is the node as a Go value: map[string]any, []any, string, bool, int, float64 or nil. Dates are strings.
func (n *node) value() any {
	switch n.kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			m[f.key] = f.value.value()
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.value()
		}
		return list
	}
	var v any
	if err := (&yaml.Node{Kind: yaml.ScalarNode, Tag: n.tag, Value: n.text}).Decode(&v); err != nil {
		return n.text
	}
	switch v := v.(type) {
	case nil, bool, int, float64, string:
		return v
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return n.text
}

func (n *node) kindName() string {
	switch v := n.value().(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	default:
		return typeName(v)
	}
}

// typeName is what a scalar is called in messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "empty value"
	case bool:
		return "boolean"
	case string:
		return "string"
	default:
		return "number"
	}
}
