package experiment

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// validator checks an instance of a tree.
type validator struct {
	root     *node
	problems *Problems
}

// validate checks an instance of the tree against the schema.
func validate(n *node, inst any, problems *Problems) {
	(&validator{n, problems}).check(inst, fileSchema(), nil)
}

// check reports what is wrong with a value, and then with what it holds.
func (v *validator) check(value any, s *schema, path []string) {
	if complaint := complaint(value, resolve(s)); complaint != "" {
		key := ""
		if len(path) > 0 {
			key = path[len(path)-1]
		}
		v.add(path, "%s %s%s", show(v.root.descend(path)), complaint, about(key, s))
	}
	switch value := value.(type) {
	case map[string]any:
		v.checkKeys(value, resolve(s), path)
	case []any:
		for i, item := range value {
			if of := child(s, ""); of != nil {
				v.check(item, of, append(slices.Clip(path), strconv.Itoa(i)))
			}
		}
	}
}

// checkKeys does it for a mapping.
func (v *validator) checkKeys(m map[string]any, s *schema, path []string) {
	if s.Type != "object" {
		return
	}
	for _, key := range s.Required {
		if _, given := m[key]; !given && !v.told(append(slices.Clip(path), key)) {
			v.add(path, "missing key %s%s", key, about(key, child(s, key)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		of := child(s, key)
		switch {
		case of != nil:
			v.check(m[key], of, append(slices.Clip(path), key))
		case s.AdditionalProperties != nil && s.AdditionalProperties.nothing:
			at := v.root.find(append(slices.Clip(path), key))
			v.problems.add(at, strings.Join(path, "."), "unknown key %s%s", key, suggest(key, slices.Collect(maps.Keys(s.Properties))))
		}
	}
}

// told says whether there is a problem with a value already, for which it may be missing here: a parameter that there is not, for instance.
func (v *validator) told(path []string) bool {
	return slices.ContainsFunc(*v.problems, func(p Problem) bool { return p.Path == strings.Join(path, ".") })
}

func (v *validator) add(path []string, format string, args ...any) {
	v.problems.add(v.root.find(path), strings.Join(path, "."), format, args...)
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

// complaint says what is wrong with a value by itself, as the end of a sentence.
func complaint(value any, s *schema) string {
	if s.Type != "" && !isOfType(value, s.Type) {
		return fmt.Sprintf("is not a %s", strings.NewReplacer("object", "mapping", "array", "list", "integer", "whole number").Replace(s.Type))
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(allowed any) bool { return fmt.Sprint(allowed) == fmt.Sprint(value) }) {
		allowed := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			allowed[i] = fmt.Sprint(v)
		}
		return fmt.Sprintf("is not one of %s%s", strings.Join(allowed, ", "), suggest(fmt.Sprint(value), allowed))
	}
	if text, ok := value.(string); ok && s.matches != nil && !s.matches.MatchString(text) {
		return "does not match " + s.Pattern
	}
	if list, ok := value.([]any); ok && len(list) < s.MinItems {
		return fmt.Sprintf("has %d entries, at least %d are needed", len(list), s.MinItems)
	}
	if !isOfType(value, "number") {
		return ""
	}
	f, _ := number(value)
	switch {
	case s.Minimum != nil && f < *s.Minimum:
		return "is below the minimum " + decimal(*s.Minimum)
	case s.Maximum != nil && f > *s.Maximum:
		return "is above the maximum " + decimal(*s.Maximum)
	case s.ExclusiveMinimum != nil && f <= *s.ExclusiveMinimum:
		return "is not above " + decimal(*s.ExclusiveMinimum)
	}
	return ""
}

// isOfType knows the types of JSON Schema.
func isOfType(value any, name string) bool {
	switch value.(type) {
	case map[string]any:
		return name == "object"
	case []any:
		return name == "array"
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	}
	f, err := number(value)
	return err == nil && value != nil && (name == "number" || name == "integer" && f == math.Trunc(f))
}

func decimal(f float64) string {
	text, _ := json.Marshal(f)
	return string(text)
}

var sentenceEnd = regexp.MustCompile(`\. [A-Z]`)

// about is the first sentence of a key's description, to stand behind a problem.
func about(key string, s *schema) string {
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
