package experiment

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

//go:generate go test -run "^(TestSchema|TestReference)$" -update .
//go:generate go test -run "^TestBadFiles$" -update .

//go:embed schema.json
var schemaJSON []byte

// fileSchema is the schema of an experiment file, generated from the types in spec.go.
var fileSchema = sync.OnceValue(func() *jsonschema.Schema {
	const url = "schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		panic(fmt.Sprintf("parse %s: %v", url, err))
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, document); err != nil {
		panic(fmt.Sprintf("add %s: %v", url, err))
	}
	return compiler.MustCompile(url)
})

// resolve follows a reference.
func resolve(s *jsonschema.Schema) *jsonschema.Schema {
	for s != nil && s.Ref != nil {
		s = s.Ref
	}
	return s
}

// child is the schema of a key or an item, nil where anything goes or nothing is allowed.
func child(s *jsonschema.Schema, key string) *jsonschema.Schema {
	s = resolve(s)
	if s == nil {
		return nil
	}
	if property, ok := s.Properties[key]; ok {
		return property
	}
	if s.Items2020 != nil {
		return s.Items2020
	}
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	return additional
}

// known says that the schema has the key.
func known(s *jsonschema.Schema, key string) bool {
	s = resolve(s)
	return s != nil && s.Properties[key] != nil
}

// hasType says that the schema wants this type and no other.
func hasType(s *jsonschema.Schema, name string) bool {
	s = resolve(s)
	return s != nil && s.Types != nil && slices.Equal(s.Types.ToStrings(), []string{name})
}

// instance is the tree as the Go value the schema is about. Where it wants a string, what is written counts, so that
// kernel 6.10 is not 6.1; an empty value is an empty mapping where it wants one, else as if the key were absent (which
// takes back what a topology says); absent keys have their default.
func instance(n *node, s *jsonschema.Schema) any {
	switch {
	case n.null() && hasType(s, "object"):
		n = &node{kind: yaml.MappingNode}
	case n.kind == yaml.ScalarNode && !n.null() && hasType(s, "string"):
		return n.text
	}
	switch n.kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			if property := child(s, f.key); !f.value.null() || hasType(property, "object") || !known(s, f.key) {
				m[f.key] = instance(f.value, property)
			}
		}
		addDefaults(m, resolve(s))
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = instance(item, child(s, "")) // items have one schema
		}
		return list
	}
	return n.value()
}

func addDefaults(m map[string]any, s *jsonschema.Schema) {
	if s == nil {
		return
	}
	for key, property := range s.Properties {
		if _, given := m[key]; !given && property.Default != nil {
			m[key] = *property.Default
		}
	}
}

// validate checks an instance of the tree against the schema.
func validate(n *node, inst any, problems *Problems) {
	err := fileSchema().Validate(inst)
	var failed *jsonschema.ValidationError
	if errors.As(err, &failed) {
		describe(failed, n, problems)
	}
}

// describe turns the leaves of a validation error into problems.
func describe(e *jsonschema.ValidationError, root *node, problems *Problems) {
	for _, cause := range e.Causes {
		describe(cause, root, problems)
	}
	if len(e.Causes) > 0 {
		return
	}
	place, path := root.find(e.InstanceLocation), strings.Join(e.InstanceLocation, ".")
	schema := fileSchema()
	for _, key := range e.InstanceLocation {
		schema = child(schema, key)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := slices.Collect(maps.Keys(resolve(schema).Properties))
		for _, key := range k.Properties {
			problems.add(root.find(append(slices.Clone(e.InstanceLocation), key)), path, "unknown key %s%s", key, suggest(key, known))
		}
	case *kind.Required:
		for _, key := range k.Missing {
			problems.add(place, path, "missing key %s%s", key, about(key, child(schema, key)))
		}
	default:
		key := ""
		if len(e.InstanceLocation) > 0 {
			key = e.InstanceLocation[len(e.InstanceLocation)-1]
		}
		problems.add(place, path, "%s %s%s", show(root.descend(e.InstanceLocation)), complaint(k), about(key, schema))
	}
}

// show is a value as it is written, and the parameter it came from.
func show(n *node) string {
	switch {
	case n == nil || n.null() && n.from == "":
		return "an empty value"
	case n.kind == yaml.ScalarNode && n.from != "":
		return fmt.Sprintf("%s (from %s)", n.text, n.from)
	case n.kind == yaml.ScalarNode:
		return n.text
	}
	return "a " + n.kindName()
}

// complaint says what is wrong with a value, as the end of a sentence.
func complaint(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("is not a %s", strings.NewReplacer("object", "mapping", "array", "list", "integer", "whole number").Replace(strings.Join(k.Want, " or ")))
	case *kind.Enum:
		allowed := make([]string, len(k.Want))
		for i, v := range k.Want {
			allowed[i] = fmt.Sprint(v)
		}
		return fmt.Sprintf("is not one of %s%s", strings.Join(allowed, ", "), suggest(fmt.Sprint(k.Got), allowed))
	case *kind.Minimum:
		return "is below the minimum " + decimal(k.Want)
	case *kind.Maximum:
		return "is above the maximum " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "is not above " + decimal(k.Want)
	case *kind.Pattern:
		return "does not match " + k.Want
	case *kind.MinItems:
		return fmt.Sprintf("has %d entries, at least %d are needed", k.Got, k.Want)
	}
	return fmt.Sprintf("is not allowed (%T)", k)
}

func decimal(r interface{ Float64() (float64, bool) }) string {
	f, _ := r.Float64()
	text, _ := json.Marshal(f)
	return string(text)
}

var sentenceEnd = regexp.MustCompile(`\. [A-Z]`)

// about is the first sentence of a key's description, to stand behind a problem.
func about(key string, s *jsonschema.Schema) string {
	if s == nil || s.Description == "" {
		return ""
	}
	sentence := s.Description
	if end := sentenceEnd.FindStringIndex(sentence); end != nil {
		sentence = sentence[:end[0]]
	}
	sentence = strings.TrimSuffix(sentence, ".")
	if strings.HasPrefix(sentence, key+" ") {
		return fmt.Sprintf(" (%s)", sentence)
	}
	return fmt.Sprintf(" (%s: %s)", key, sentence)
}
