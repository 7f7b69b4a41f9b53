package experiment

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
)

const referenceHead = `# Experiment files: reference

Written by ` + "`go generate ./lab/experiment`" + ` from the schema, the table of metrics and the table of functions. Do not edit.

An experiment file is YAML and holds one question. Its base name is its name. Keys that are not listed here, values out of
range, names that do not exist and expressions that cannot be evaluated are reported with file, line and column before
anything runs. Anchors and aliases are not supported.

## Parameters in values

In the values of kernel, sysctl, nodes, links, routers, apps, timeline, measure and duration_s:

| written | stands for |
|---|---|
| ` + "`$name`" + ` | the parameter. If it is the whole value, its type is kept: a number stays a number, a list a list. |
| ` + "`$(expression)`" + ` | the value of the expression over the parameters and ` + "`variant`" + `, its type kept likewise. |
| ` + "`\"flow-$name\"`, `\"$(a + 1) s\"`" + ` | the same within a longer string |
| ` + "`$$`" + ` | a dollar sign, e.g. ` + "`$$(date)`" + ` for the shell's own ` + "`$(date)`" + ` |
| ` + "`$FROM`, `$5`, a dollar at the end" + ` | themselves: names of parameters are lower case |

A key whose value becomes nil is left out; a key with an empty value or null takes back what the topology file says.
The value of a parameter may refer to other parameters. A parameter is the last of: its default in params, the matrix or
the variant (not both), --set. A parameter that nothing refers to is a mistake.

` + "`--set name=value`" + ` sets a parameter; several values with commas between them make it an axis of the matrix.
` + "`--set links.a.rate_mbps=10`" + ` sets any value by its path; entries of lists are counted from 0.

Parameters, nodes, links, applications and variants have names of lower-case letters, digits and _, and no two the same
name. Nodes and links that no expression names may have dashes. Links have at most 15 characters, nodes 20.
`

// typeSections writes a section for every type the schema refers to, in the order in which they are met.
func typeSections(b *strings.Builder, schema *jsonschema.Schema) {
	queue, seen := []string{}, map[string]bool{}
	section := func(title, about string, s *jsonschema.Schema) {
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n| key | type, limits, default | meaning |\n|---|---|---|\n", title, cell(about))
		for pair := s.Properties.Oldest(); pair != nil; pair = pair.Next() {
			key, property := pair.Key, pair.Value
			if contains(s.Required, key) {
				key += " (required)"
			}
			kind, ref := typeOf(property)
			if ref != "" && !seen[ref] {
				seen[ref] = true
				queue = append(queue, ref)
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", key, cell(kind), cell(property.Description))
		}
	}
	section("The file", "The keys at the top.", schema)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		section(name, schema.Definitions[name].Description, schema.Definitions[name])
		if name == "App" {
			b.WriteString("\nKeys by type, beyond those all have (" + strings.Join(commonAppKeys, ", ") + ", when):\n\n| type | needs | may have |\n|---|---|---|\n")
			for _, keys := range keysByType {
				fmt.Fprintf(b, "| %s | %s | %s |\n", keys.Type, strings.Join(keys.Required, ", "), strings.Join(keys.Optional, ", "))
			}
		}
	}
}

func contains(list []string, s string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+s+" ")
}

// typeOf says what a value may be, and which type of the schema it refers to.
func typeOf(s *jsonschema.Schema) (text, ref string) {
	switch {
	case s.Ref != "":
		ref = path.Base(s.Ref)
		return fmt.Sprintf("[%s](#%s)", ref, strings.ToLower(ref)), ref
	case s.Type == "array":
		text, ref = typeOf(s.Items)
		text = "list of " + text
		if s.MinItems != nil {
			text += fmt.Sprintf(", at least %d of them", *s.MinItems)
		}
		return text, ref
	case s.Type == "object":
		text, ref = "anything", ""
		if s.AdditionalProperties != nil {
			text, ref = typeOf(s.AdditionalProperties)
		}
		return "name -> " + text, ref
	}
	text = cmp.Or(map[string]string{"integer": "whole number"}[s.Type], s.Type, "anything")
	if len(s.Enum) > 0 {
		text = "one of " + strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Enum), "[]"), " ", ", ")
	}
	for _, limit := range []struct{ name, value string }{
		{"at least ", string(s.Minimum)}, {"above ", string(s.ExclusiveMinimum)}, {"at most ", string(s.Maximum)}, {"matches ", s.Pattern},
	} {
		if limit.value != "" {
			text += ", " + limit.name + limit.value
		}
	}
	if s.Default != nil {
		text += fmt.Sprintf("; default %v", s.Default)
	}
	return text, ""
}

// cell is text that may stand in a table.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s) }

// TestReference checks that the reference page says what the schema and the tables of this package say.
func TestReference(t *testing.T) {
	b := new(strings.Builder)
	b.WriteString(referenceHead)
	typeSections(b, generateSchema(t))
	b.WriteString(`
## Expressions

Conditions (when, skip), bounds, published numbers and $( ) use one language: numbers, strings in quotes, lists,
+ - * / % ^, == != < <= > >=, && || !, in, and condition ? a : b. Conditions see the parameters, skip and the conditions of
applications and events also variant. Conditions of bounds, published numbers and plots, and all bounds, see in addition:

| name | value |
|---|---|
| link.parameter | a parameter of a link in which both directions agree, e.g. a.rate_mbps, a.gilbert_elliott.p_percent |
| link.forward.parameter, link.backward.parameter | the parameter in one direction; what is nested has then before it, e.g. a.forward.then.rate_mbps |

Parameters and links are those of the variants that the expression names, else of all; one that is not the same in them is a mistake. Bounds and published numbers also see metrics, each the mean over the seeds, or with over: seed its value with one:

| name | value |
|---|---|
| variant.name.metric | a metric of an application, node or link in a variant |
| variant.name.second_mbps | the goodput of an application in each second of the timeline, from second 0 on: a list, e.g. min(plait.bulk.second_mbps[10:]). There is no number before it starts, nor of the second in which it ends, unless it runs to the end of that |
| variant.metric | a metric of its application, if it has only one |
| name.metric | the same without variants in the file; run.name.metric and run.metric work as well |

With over: all every metric is the list of its values at all points to which the bound applies, and a parameter is one where
it changes from point to point. A bound that needs a cell that failed, or a number where a metric was not measured, is invalid and does not hold;
so is one over max, mean, median or min of an empty list, and one over seconds that all come after the end of the application.

| function | value |
|---|---|
`)
	for _, f := range Functions {
		fmt.Fprintf(b, "| %s | %s |\n", f.Usage, f.Meaning)
	}
	b.WriteString("\n## Metrics\n")
	for _, group := range metricGroups() {
		fmt.Fprintf(b, "\nOf %s:\n\n| metric | unit | meaning |\n|---|---|---|\n", group.Of)
		for _, m := range group.Metrics {
			fmt.Fprintf(b, "| %s | %s | %s |\n", m.Name, m.Unit, m.Meaning)
		}
	}
	b.WriteString("\nA command has in addition the metrics it reads from its output (results).\n")
	checkGenerated(t, "../../docs/lab/reference.md", []byte(b.String()))
}
