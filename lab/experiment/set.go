package experiment

import (
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// applySet carries out every --set: a parameter is kept for the matrix, a path replaces a value of the tree.
func (l *loader) applySet() {
	l.declared = l.parameters()
	replaced := map[string][]string{} // path of each --set that is one
	for _, set := range l.opt.Set {
		place := Place{File: "--set " + set}
		key, value, found := strings.Cut(set, "=")
		if !found || key == "" || strings.TrimSpace(value) == "" {
			l.problems.add(place, "", "write key=value, a parameter or a path into the file, e.g. links.a.rate_mbps=10")
			continue
		}
		if declared := l.parameters(); slices.Contains(declared, key) {
			if list := l.setList(place, value); list != nil {
				l.forced = append(l.forced, field{key, place, list})
			}
		} else if path := l.setPath(place, key); path != nil {
			if v := l.setValue(place, value); v != nil {
				l.tree = replace(l.tree, path, v)
				l.replaced += "\n# --set " + set
				replaced[set] = path
			}
		}
	}
	for _, set := range slices.Sorted(maps.Keys(replaced)) {
		l.checkOverruled(Place{File: "--set " + set}, replaced[set])
	}
}

// sectionsOfParameters are the sections whose keys are names of parameters, with how deep in them these are.
var sectionsOfParameters = map[string]int{"params": 1, "matrix": 1, "variants": 2}

// checkOverruled reports a --set of what one section says of a parameter where another --set or section has the last word in every cell: it would
// change nothing, and the result would name it.
func (l *loader) checkOverruled(place Place, path []string) {
	depth := sectionsOfParameters[path[0]]
	if depth == 0 || len(path) != depth+1 {
		return
	}
	names, variants := axisNames(path[depth]), l.tree.get("variants")
	forced := func(name string) bool {
		return slices.ContainsFunc(l.forced, func(f field) bool { return f.key == name })
	}
	inMatrix := func(axis string) bool { return slices.Contains(axisNames(axis), names[0]) }
	inVariant := func(f field) bool { return f.value.get(names[0]) != nil }
	by := ""
	switch {
	case !slices.ContainsFunc(names, func(name string) bool { return !forced(name) }):
		by = "another --set"
	case path[0] == "params" && slices.ContainsFunc(l.tree.get("matrix").keys(), inMatrix):
		by = "the matrix"
	case path[0] == "params" && variants != nil && len(variants.fields) > 0 && !slices.ContainsFunc(variants.fields, func(f field) bool { return !inVariant(f) }):
		by = "every variant"
	default:
		return
	}
	l.problems.add(place, "", "changes nothing, for %s has a value of %s; write --set %s=..., once", by, path[depth], names[0])
}

// parameters are the names of all parameters the file declares.
func (l *loader) parameters() []string {
	declared := map[string]bool{}
	for _, name := range l.tree.get("params").keys() {
		declared[name] = true
	}
	for _, axis := range l.tree.get("matrix").keys() {
		for _, name := range axisNames(axis) {
			declared[name] = true
		}
	}
	if variants := l.tree.get("variants"); variants != nil {
		for _, variant := range variants.fields {
			for _, name := range variant.value.keys() {
				declared[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(declared))
}

// checkForced reports a --set that takes away what tells two variants apart: both would run the same, one of them under a name that says otherwise.
func (l *loader) checkForced(cells []Cell) {
	for _, f := range l.forced {
		of := func(c Cell) *node { return l.tree.descend([]string{"variants", c.Variant, f.key}) }
		for i, c := range cells {
			same := slices.IndexFunc(cells[:i], func(other Cell) bool { return reflect.DeepEqual(other.Params, c.Params) })
			if same >= 0 && (of(c) != nil || of(cells[same]) != nil) {
				l.problems.add(f.place, "", "variants %s and %s would be the same, for %s tells them apart; replace the value of one of them, variants.%s.%s",
					cells[same].Variant, c.Variant, f.key, c.Variant, f.key)
				return
			}
		}
	}
}

// setList reads the values of a parameter, which have commas between them and are no list of YAML before they stand in its brackets. A comment must not
// hide the one that closes it, nor the text close it.
func (l *loader) setList(place Place, values string) *node {
	if strings.HasSuffix(strings.TrimSpace(values), ",") { // YAML takes that for the end of the list
		l.problems.add(place, "", "there is no value behind the last comma")
		return nil
	}
	list := l.setValue(place, "["+values+"\n]")
	if list != nil && len(list.items) == 0 {
		l.problems.add(place, "", "the value is not YAML")
		return nil
	}
	return list
}

func (l *loader) setValue(place Place, text string) *node {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil || len(document.Content) != 1 || !errors.Is(decoder.Decode(&second), io.EOF) {
		l.problems.add(place, "", "the value is not YAML")
		return nil
	}
	n := newNode(place.File, document.Content[0], "", &l.problems)
	n.move(place)
	return n
}

// setPath splits a path and checks it against the schema and the file: keys of the schema may be added, names may not.
func (l *loader) setPath(place Place, key string) []string {
	parts := strings.Split(key, ".")
	schema, at := fileSchema(), l.tree
	for i, part := range parts {
		schema = resolve(schema)
		switch {
		case at != nil && at.kind == yaml.ScalarNode && !at.null():
			whole := strings.Join(parts[:i], ".")
			l.problems.add(place, "", "%s is %s, so there is no %s in it; set %s as a whole, or the parameter that it names", whole, at.text, part, whole)
			return nil
		case at != nil && at.kind == yaml.SequenceNode:
			if n, err := strconv.Atoi(part); err != nil || n < 0 || n >= len(at.items) {
				l.problems.add(place, "", "%s has the entries 0 to %d; there is no %s", strings.Join(parts[:i], "."), len(at.items)-1, part)
				return nil
			}
		case free(schema):
			path := append(parts[:i:i], strings.Join(parts[i:], "."))
			return l.declaredPath(place, path)
		default:
			known := at.keys()
			if schema != nil {
				known = append(known, slices.Collect(maps.Keys(schema.Properties))...)
			}
			if i == 0 {
				known = append(known, l.parameters()...)
			}
			if !slices.Contains(known, part) {
				l.problems.add(place, "", "there is no %s%s", strings.Join(parts[:i+1], "."), suggest(part, known))
				return nil
			}
		}
		schema, at = child(schema, part), at.descend([]string{part})
	}
	return parts
}

const noParameter = "there is no parameter %s%s"

// declaredPath is the path, nil if it would invent a parameter, which nothing could use.
func (l *loader) declaredPath(place Place, path []string) []string {
	if depth := sectionsOfParameters[path[0]]; depth > 0 && depth < len(path) {
		known := l.parameters()
		for _, name := range axisNames(path[depth]) {
			if !slices.Contains(known, name) {
				l.problems.add(place, "", noParameter, name, suggest(name, known))
				return nil
			}
		}
	}
	return path
}

// free says that a mapping's keys are whatever the user likes (they may hold dots, like sysctls) and its values are plain.
func free(s *schema) bool {
	return hasType(s, "object") && len(s.Properties) == 0 && !hasType(child(s, ""), "object")
}

// replace is the tree with the value at path replaced; mappings on the way are made if they are absent.
func replace(n *node, path []string, value *node) *node {
	if len(path) == 0 {
		return value
	}
	if n == nil || n.null() { // no other scalar is on the way: setPath
		n = &node{place: value.place, kind: yaml.MappingNode}
	}
	if n.kind == yaml.SequenceNode {
		i, _ := strconv.Atoi(path[0]) // checked by setPath
		copied := *n
		copied.items = slices.Clone(n.items)
		copied.items[i] = replace(n.items[i], path[1:], value)
		return &copied
	}
	return n.with(path[0], value.place, replace(n.get(path[0]), path[1:], value))
}
