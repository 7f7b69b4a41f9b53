package experiment

import (
	"reflect"
	"slices"
	"testing"
)

// TestSubstitution checks what a value becomes, its type included.
func TestSubstitution(t *testing.T) {
	x := mustLoad(t, `
params:
  n: 3
  f: 2.5
  s: text
  b: true
  list: [1, two]
  version: 6.10
  derived: $(n * f)
  deeper: $derived
  none: null
variants: {fast: {}}
sysctl:
  x.number: $n
  x.quoted: "$n"
  x.float: $f
  x.string: $s
  x.boolean: $b
  x.derived: $deeper
  x.sum: $(n + 1)
  x.large: $(f * 1e6)
  x.in_text: "$(f * 1e6) bytes"
  x.quotient: $(n / 2)
  x.condition: '$(n > 2 ? "yes" : "no")'
  x.of_list: $(list[1])
  x.inside: "a-$n-${s}-$(n+f)-$s.x"
  x.dollar: "$$n costs $5, $FROM and $"
  x.parentheses: "$(max(n, (1 + 2)) + 4)ms"
  x.quoted_parenthesis: '$(s + ")")'
  x.gone: $none
  x.also_gone: '$(n > 2 ? nil : 1)'
  x.variant: $variant
nodes: {server: {run: $list}}
links: {a: {ends: [client, server], rate_mbps: $n}}
apps:
  tool: {type: command, from: server, to: client, client_command: "run $n -c $FROM:$PORT $(n + 1) $$(date)"}
  no: {type: ping, from: server, to: client, gap_ms: 1, count: 1, when: variant != "fast"}
  yes: {type: ping, from: server, to: client, gap_ms: 1, count: 1, when: variant == "fast" && version > 6}
`, Options{})
	spec := x.Cells()[0].Spec
	want := map[string]any{
		"x.number": 3.0, "x.quoted": 3.0, "x.float": 2.5, "x.string": "text", "x.boolean": true,
		"x.derived": 7.5, "x.sum": 4.0, "x.large": 2500000.0, "x.in_text": "2500000 bytes", "x.quotient": 1.5, "x.condition": "yes", "x.of_list": "two",
		"x.inside": "a-3-${s}-5.5-text.x", "x.dollar": "$n costs $5, $FROM and $", "x.parentheses": "7ms",
		"x.quoted_parenthesis": "text)", "x.variant": "fast",
	}
	if !reflect.DeepEqual(spec.Sysctl, want) { // numbers are float64: the spec has passed through JSON
		t.Errorf("got  %v\nwant %v", spec.Sysctl, want)
	}
	if got := spec.Nodes["server"].Run; !slices.Equal(got, []string{"1", "two"}) {
		t.Errorf("commands %q", got)
	}
	if got, want := spec.Apps["tool"].ClientCommand, "run 3 -c $FROM:$PORT 4 $(date)"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	if got := sortedKeys(spec.Apps); !slices.Equal(got, []string{"tool", "yes"}) {
		t.Errorf("applications %v", got)
	}
}

// TestStrings checks that what is written where a string belongs stays as it is written.
func TestStrings(t *testing.T) {
	for written, want := range map[string]string{"6.1": "6.1", "6.12": "6.12", "$k": "6.1", `"7.2"`: "7.2"} {
		params := ""
		if written == "$k" {
			params = "params: {k: 6.1}\n"
		}
		x := mustLoad(t, params+"kernel: "+written+"\nlinks: {a: {ends: [client, server]}}\n"+bulk, Options{})
		if got := x.Cells()[0].Spec.Kernel; got != want {
			t.Errorf("kernel: %s is %s, want %s", written, got, want)
		}
	}
}

func TestSplitDollars(t *testing.T) {
	for text, want := range map[string][]dollarPart{
		"$a":         {{code: "a", name: true}},
		"$(a)":       {{code: "a"}},
		"x$a$b":      {{literal: "x"}, {code: "a", name: true}, {code: "b", name: true}},
		"$A_b":       {{literal: "$A_b"}},
		"$$(a)":      {{literal: "$(a)"}},
		`$("(" + a)`: {{code: `"(" + a`}},
		`$('\')' )x`: {{code: `'\')' `}, {literal: "x"}},
	} {
		got, err := splitDollars(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"$(a", "$(a(b)", "$()"} {
		if parts, err := splitDollars(text); err == nil {
			t.Errorf("%s: %v", text, parts)
		}
	}
}
