package report

import (
	"reflect"
	"testing"

	"plait.dev/plait/lab/result"
)

func TestLimits(t *testing.T) {
	s := small()
	x := map[string]any{"x": 2}
	s.file.Bounds = []result.Bound{
		{Expression: "b.app.p50_ms <= 5", Operator: "<=", Params: x, Left: 7, Right: 5},
		{Expression: "1.5 * x < b.p50_ms", Operator: "<", Params: x, Left: 3, Right: 7, OK: true},
		{Expression: "b.p50_ms >= a.p50_ms", Operator: ">=", Params: x, Left: 7, Right: 3, OK: true},       // both bars are there to see
		{Expression: "b.p50_ms / a.p50_ms >= 2", Operator: ">=", Params: x, Left: 2.3, Right: 2, OK: true}, // not about the metric itself
		{Expression: "a.p50_ms <= 9", Operator: "<=", Params: x, Left: 3, Right: 9, OK: true},              // another variant
		{Expression: "b.p50_ms <= 6", Operator: "<=", Params: map[string]any{"x": 1}, Right: 6},            // another point
		{Expression: "b.p50_ms <= 4", Operator: "<=", Params: x, Right: 4, Invalid: "b has no valid run"},  // says nothing
		{Expression: "mean(b.p50_ms) <= 4", Operator: "<=", Left: 6, Right: 4},                             // over all points
	}
	want := []limit{{"<=", 5, false}, {">", 3, true}}
	if got := s.limits(1, "b", "app", "p50_ms"); !reflect.DeepEqual(got, want) {
		t.Errorf("limits = %v, want %v", got, want)
	}
	s.file.Bounds = []result.Bound{{Expression: "app.p50_ms>=8", Operator: ">=", Params: x, Left: 7, Right: 8}}
	if got := s.limits(1, "run", "app", "p50_ms"); !reflect.DeepEqual(got, []limit{{">=", 8, false}}) {
		t.Errorf("without variants: limits = %v", got)
	}
	s.file.Experiment.Topology = chain("host", "peer")
	s.file.Bounds = []result.Bound{{Expression: "b.p50_ms <= 5", Operator: "<=", Params: x, Left: 7, Right: 5}}
	for _, owner := range []string{"host", "l1", "app/1", "fairness"} { // each may have a metric of that name
		if got := s.limits(1, "b", owner, "p50_ms"); len(got) > 0 || s.concerns("b.p50_ms", owner+".p50_ms") {
			t.Errorf("the application's limits %v are those of %s", got, owner)
		}
	}
	if p, ok := s.published(0, "a", "app", "p50_ms"); !ok || p.Published != 4 {
		t.Errorf("published = %v, %v", p, ok)
	}
	if _, ok := s.published(1, "a", "app", "p50_ms"); ok {
		t.Error("the paper's number of another point was taken")
	}
}
