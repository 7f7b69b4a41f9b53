package daemon

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// published has a series of each kind that Prometheus may get.
func published(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	x := &exits{config: Egress{Exits: []egress.Exit{{Name: "a"}}}, health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks()}
	managed := 1
	state := exitsState{managed: &managed, census: &mptcp.Census{}, exits: []string{"a"}, refused: map[string]uint64{"a": 1}, sessions: []SessionStatus{{}}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{func() Status { return Status{} }, counterMetrics()}, exitsCollector{x}, exitsStateCollector{func() exitsState { return state }}, acksCollector{func() AckpathStatus { return AckpathStatus{} }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// has reports whether there is such a series, with these labels and, where a value is given, that one.
func has(families []*dto.MetricFamily, name string, labels map[string]string) bool {
	for _, f := range families {
		if f.GetName() != name && (f.GetType() != dto.MetricType_HISTOGRAM || f.GetName() != strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")) {
			continue
		}
		for _, m := range f.GetMetric() {
			found := 0
			for _, l := range m.GetLabel() {
				if want, asked := labels[l.GetName()]; asked && (want == "" || want == l.GetValue()) {
					found++
				}
			}
			if found == len(labels) {
				return true
			}
		}
	}
	return false
}

var (
	selectors = regexp.MustCompile(`\b(plait_\w+)(?:\{(\w+)="([^"]*)"\})?`)
	ofLabels  = regexp.MustCompile(`\$labels\.(\w+)`)
)

// asks fails for what an expression asks for and plait does not publish; labels are those that it is to have besides.
func asks(t *testing.T, families []*dto.MetricFamily, where, expr string, labels ...string) {
	t.Helper()
	for _, m := range selectors.FindAllStringSubmatch(expr, -1) {
		want := map[string]string{}
		for _, l := range labels {
			want[l] = ""
		}
		if m[2] != "" && m[2] != "le" {
			want[m[2]] = m[3]
		}
		if !has(families, m[1], want) {
			t.Errorf("%s: plait publishes no %s with %v", where, m[1], want)
		}
	}
}

// What the alerts and the queries of docs/prometheus ask for is what plait publishes, and the page lists the alerts. An alert about a metric that was renamed never fires.
func TestAlerts(t *testing.T) {
	families := published(t)
	page, err := os.ReadFile("../docs/prometheus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      struct{ Severity string }
				Annotations struct{ Summary, Action string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	listed := strings.Count(string(page), "\n| `Plait")
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			listed--
			if !strings.Contains(string(page), "\n| `"+r.Alert+"` | "+r.Labels.Severity+" |") {
				t.Errorf("%s: not in the table of docs/prometheus/README.md as %s", r.Alert, r.Labels.Severity)
			}
			if r.Annotations.Action == "" {
				t.Errorf("%s: says nothing to do", r.Alert)
			}
			var labels []string
			for _, l := range ofLabels.FindAllStringSubmatch(r.Annotations.Summary, -1) {
				if l[1] != "instance" { // Prometheus' own
					labels = append(labels, l[1])
				}
			}
			asks(t, families, r.Alert, r.Expr, labels...)
		}
	}
	if listed != 0 {
		t.Errorf("the table of docs/prometheus/README.md has %d alerts more than alerts.yaml", listed)
	}
	for line := range strings.Lines(string(page)) {
		if query, is := strings.CutPrefix(line, "    "); is {
			asks(t, families, "docs/prometheus/README.md", query)
		}
	}
}
