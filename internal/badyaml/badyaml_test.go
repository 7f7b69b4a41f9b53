package badyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The parser does not say where characters are that no file may have, counts lines from 0 or from 1, tells no columns, and of a block in which a line is indented
// wrongly it names the beginning.
func TestWhere(t *testing.T) {
	for text, want := range map[string]string{
		"name: x\nb: {c: 1\nd: 2\n":       "2:0: did not find expected ',' or '}'",
		"name: x\nb: [1\n":                "2:0: did not find expected ',' or ']'",
		"name: x\nb:\n  - a\n  c: 1\n":    "4:0: did not find expected '-' indicator",
		"name: x\n]\n":                    "2:0: did not find expected key",
		"name: x\nb: c: d\n":              "2:0: mapping values are not allowed",
		"a: b: c\n":                       "1:0: mapping values are not allowed",
		"a: 1\n\tb: 2\n":                  "2:0: found a tab character that violates indentation",
		"name: x\nquestion: é Caf\xe9?\n": "2:16: invalid",
		"name: x\n\n# \x01\n":             "3:3: control characters are not allowed",
		"name: x\r\nabout: \x7f":          "2:8: control characters are not allowed",
		"a: \uffff\n":                     "1:4: control characters are not allowed",
		"{}\n...\ngarbage: {\n":           "3:0: did not find expected <document start>",
		"a: *b\n":                         "1:4: unknown anchor 'b' referenced",

		"a:\n  b:\n    - c: 22\n      d: off\n   e: f\n  g: on\n": "5:0: did not find expected key",
		"a:\n  b:\n    - c: 22\n      d: off\n\n    c: 23\n":      "6:0: did not find expected '-' indicator",
		"{}\n---\na:\n  b: 1\n  c:\n    d: 2\n   e\n":             "7:0: did not find expected key",
		strings.Repeat("- a: 1\n  b: 2\n", 500) + " - a: 1\n":     "1001:0: did not find expected '-' indicator",
	} {
		decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
		var err error
		for err == nil {
			err = decoder.Decode(&yaml.Node{})
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("%.60q is YAML", text)
			continue
		}
		line, column, cause := Where([]byte(text), err)
		if got := fmt.Sprintf("%d:%d: %s", line, column, cause); !strings.HasPrefix(got, want) {
			t.Errorf("%.60q: %s, want %s", text, got, want)
		}
	}
}
