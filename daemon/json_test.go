package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/congestion"
	"plait.dev/plait/signals"
)

// jsonKeys are those of a struct, with ? behind one that may be left out.
func jsonKeys(value any) (keys []string) {
	t := reflect.TypeOf(value)
	for i := range t.NumField() {
		tag, named := t.Field(i).Tag.Lookup("json")
		if !named {
			continue
		}
		name, omit, _ := strings.Cut(tag, ",")
		if omit != "" {
			name += "?"
		}
		keys = append(keys, name)
	}
	return keys
}

// firstKeys are the keys in the first column of the first table behind a heading or line of a page.
func firstKeys(t *testing.T, page, behind string) (keys []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+behind+"\n")
	if !found {
		t.Fatalf("docs/%s: has no line %q", page, behind)
	}
	_, rest, _ = strings.Cut(rest, "\n|---")
	table, _, _ := strings.Cut(rest, "\n\n")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`(\\??) ").FindAllStringSubmatch(table, -1) {
		keys = append(keys, m[1]+m[2])
	}
	return keys
}

// The pages have every key of what commands print as JSON, in its order, and no other.
func TestJSONPages(t *testing.T) {
	var counters []string
	for _, m := range counterMetrics() {
		counters = append(counters, m.counter)
	}
	for _, c := range []struct {
		page, behind string
		keys         []string
	}{
		{"congestion/json.md", "## plait status", jsonKeys(Status{})},
		{"congestion/json.md", "### Counters", counters},
		{"congestion/json.md", "### Destinations", jsonKeys(PrefixStatus{})},
		{"congestion/json.md", "### Groups", jsonKeys(Group{})},
		{"congestion/json.md", "### Comparison", jsonKeys(Comparison{})},
		{"congestion/json.md", "### Connections", jsonKeys(SocketStatus{})},
		{"congestion/json.md", "### Candidates", jsonKeys(congestion.Score{})},
		{"congestion/json.md", "### Segments", jsonKeys(Segments{})},
		{"congestion/json.md", "### Samples", jsonKeys(signals.Sample{})},
		{"congestion/json.md", "`egress`:", jsonKeys(EgressSummary{})},
		{"congestion/json.md", "`ackpath`:", jsonKeys(AckpathSummary{})},
		{"congestion/json.md", "## plait doctor", jsonKeys(Check{})},
		{"congestion/json.md", "## plait replay", append([]string{"at_us", "cookie"}, jsonKeys(congestion.Choice{})...)},
		{"egress/check.md", "## As JSON", jsonKeys(CheckResult{})},
	} {
		if got := firstKeys(t, c.page, c.behind); !slices.Equal(got, c.keys) {
			t.Errorf("docs/%s, %s: has the keys\n%q\nwant\n%q", c.page, c.behind, got, c.keys)
		}
	}
}

// A program goes through a list that is empty, and not through null.
func TestNoNullInStatus(t *testing.T) {
	h := newHost(t)
	text, err := json.Marshal(h.inside(takeAll, new(bytes.Buffer)).Status())
	h.must(err)
	if strings.Contains(string(text), "null") {
		t.Errorf("got %s", text)
	}
}
