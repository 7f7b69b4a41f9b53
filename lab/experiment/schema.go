package experiment

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:generate go test -run "^(TestSchema|TestReference)$" -update .
//go:generate go test -run "^TestBadFiles$" -update .

//go:embed schema.json
var schemaJSON []byte

// schema is what plait's own schema has of JSON Schema (draft 2020-12). A library for all of it compiles the metaschemas of every draft when
// a process begins, which was half of the start of every plait command; TestSchemaAgainstLibrary compares verdicts with it.
type schema struct {
	Draft                string             `json:"$schema"`
	Ref                  string             `json:"$ref"`
	Defs                 map[string]*schema `json:"$defs"`
	Type                 string             `json:"type"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	MinItems             int                `json:"minItems"`
	Enum                 []any              `json:"enum"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	ExclusiveMinimum     *float64           `json:"exclusiveMinimum"`
	Pattern              string             `json:"pattern"`
	Default              any                `json:"default"`
	Description          string             `json:"description"`

	nothing bool           // the schema false
	refers  *schema        // what Ref names
	matches *regexp.Regexp // Pattern
}

// UnmarshalJSON refuses keywords that nothing here looks at.
func (s *schema) UnmarshalJSON(b []byte) error {
	if s.nothing = string(b) == "false"; s.nothing || string(b) == "true" {
		return nil
	}
	type plain schema
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(s)); err != nil || s.Pattern == "" {
		return err
	}
	var err error
	s.matches, err = regexp.Compile(s.Pattern)
	return err
}

// link finds what references name.
func (s *schema) link(defs map[string]*schema) {
	if s == nil {
		return
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s.refers = defs[name]
	}
	for _, p := range s.Properties {
		p.link(defs)
	}
	s.AdditionalProperties.link(defs)
	s.Items.link(defs)
}

// fileSchema is the schema of an experiment file, generated from the types in spec.go.
var fileSchema = sync.OnceValue(func() *schema {
	s := new(schema)
	if err := json.Unmarshal(schemaJSON, s); err != nil {
		panic(fmt.Sprintf("parse schema.json: %v", err))
	}
	s.link(s.Defs)
	for _, d := range s.Defs {
		d.link(s.Defs)
	}
	return s
})

// resolve follows a reference.
func resolve(s *schema) *schema {
	for s != nil && s.refers != nil {
		s = s.refers
	}
	return s
}

// child is the schema of a key or an item, nil where anything goes or nothing is allowed.
func child(s *schema, key string) *schema {
	s = resolve(s)
	if s == nil {
		return nil
	}
	if property, ok := s.Properties[key]; ok {
		return property
	}
	if s.Items != nil {
		return s.Items
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.nothing {
		return nil
	}
	return s.AdditionalProperties
}

// known says that the schema has the key.
func known(s *schema, key string) bool {
	s = resolve(s)
	return s != nil && s.Properties[key] != nil
}

// hasType says that the schema wants this type.
func hasType(s *schema, name string) bool {
	s = resolve(s)
	return s != nil && s.Type == name
}

// instance is the tree as the Go value the schema is about. Where it wants a string, what is written counts, so that
// kernel 6.10 is not 6.1; an empty value is an empty mapping where it wants one, else as if the key were absent (which
// takes back what a topology says); absent keys have their default.
func instance(n *node, s *schema) any {
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

func addDefaults(m map[string]any, s *schema) {
	if s == nil {
		return
	}
	for key, property := range s.Properties {
		if _, given := m[key]; !given && property.Default != nil {
			m[key] = property.Default
		}
	}
}
