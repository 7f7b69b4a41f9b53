package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/congestion"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
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
		{"congestion/json.md", "### Round trips at a loss", jsonKeys(AtLoss{})},
		{"congestion/json.md", "### Candidates", jsonKeys(congestion.Score{})},
		{"congestion/json.md", "### Segments", jsonKeys(Segments{})},
		{"congestion/json.md", "### Samples", jsonKeys(signals.Sample{})},
		{"congestion/json.md", "`egress`:", jsonKeys(EgressSummary{})},
		{"congestion/json.md", "`ackpath`:", jsonKeys(AckpathSummary{})},
		{"congestion/json.md", "## plait doctor", jsonKeys(Check{})},
		{"congestion/json.md", "## plait replay", append([]string{"at_us", "cookie"}, jsonKeys(congestion.Choice{})...)},
		{"egress/check.md", "## As JSON", jsonKeys(CheckResult{})},
		{"egress/json.md", "## Exits and sessions", jsonKeys(EgressStatus{})},
		{"egress/json.md", "### Sessions", jsonKeys(SessionStatus{})},
		{"egress/json.md", "### Exits", jsonKeys(ExitStatus{})},
		{"egress/json.md", "### Traffic", jsonKeys(TrafficStatus{})},
		{"egress/json.md", "### Refused routes", jsonKeys(RefusedStatus{})},
		{"egress/json.md", "### MPTCP", jsonKeys(MPTCPStatus{})},
		{"egress/json.md", "## Routes", jsonKeys(RouteStatus{})},
		{"egress/json.md", "## Explain", jsonKeys(Explanation{})},
		{"egress/json.md", "### Ways", jsonKeys(WayStatus{})},
		{"egress/json.md", "### Services", jsonKeys(ServiceStatus{})},
		{"egress/json.md", "## Prefixes", jsonKeys(KnownStatus{})},
		{"egress/json.md", "## Log", jsonKeys(JournalEntry{})},
		{"ackpath/json.md", "## Status", jsonKeys(AckpathStatus{})},
		{"ackpath/json.md", "### Subflows", jsonKeys(AckFlowStatus{})},
		{"ackpath/json.md", "### Ways", jsonKeys(AckWayStatus{})},
		{"ackpath/json.md", "### Taken", jsonKeys(TakenStatus{})},
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

// Nor of the lever egress before anything was told.
func TestNoNullInEgress(t *testing.T) {
	plan, err := egress.NewPlan(nil)
	if err != nil {
		t.Fatal(err)
	}
	x := &exits{plan: plan, speaker: new(bgp.Speaker)}
	m := http.NewServeMux()
	x.questions(m)
	for _, path := range []string{"", "/routes", "/explain?client=2001:db8::1", "/log"} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/egress"+path, nil))
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "null") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}
