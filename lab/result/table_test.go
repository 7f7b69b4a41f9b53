package result

import (
	"math"
	"reflect"
	"testing"
)

func TestArrange(t *testing.T) {
	f := sample()
	f.Cells[1].Invalid = "subflow not joined"
	table := Arrange(f)
	if want := []string{"rate_mbps"}; !reflect.DeepEqual(table.Params, want) {
		t.Errorf("params = %v, want %v: queue is the same everywhere", table.Params, want)
	}
	if want := []string{"mptcp", "tcp"}; !reflect.DeepEqual(table.Variants, want) {
		t.Errorf("variants = %v, want %v", table.Variants, want)
	}
	if len(table.Points) != 2 || table.Points[1].Label != "rate_mbps 20" {
		t.Fatalf("points = %v", table.Points)
	}
	if point, ok := table.Find(map[string]any{"rate_mbps": 20.0, "queue": "deep"}); !ok || point != 1 {
		t.Errorf("find rate_mbps 20.0 = %d, %v; want 1: numbers read from a file are floating point", point, ok)
	}
	if _, ok := table.Find(nil); ok {
		t.Error("a bound over all points was put at one")
	}
	if got := len(table.Cells(0, "mptcp")); got != 2 {
		t.Errorf("cells = %d, want both seeds", got)
	}
	if got, _ := table.Metric(0, "mptcp", "bulk", "goodput_mbps"); got.N != 1 || got.Mean != 20.25 {
		t.Errorf("metric = %+v, want seed 1 alone", got)
	}
	if _, ok := table.Metric(0, "mptcp", "bulk", "absent"); ok {
		t.Error("a metric that is nowhere was found")
	}
}

// Variants stand beside each other where a parameter that follows from the matrix differs between them.
func TestDerivedParameters(t *testing.T) {
	f := sample()
	f.Experiment.Matrix = []string{"rate_mbps"}
	for i := range f.Cells {
		f.Cells[i].Params["packets"] = len(f.Cells[i].Variant) * f.Cells[i].Params["rate_mbps"].(int)
	}
	table := Arrange(f)
	if len(table.Points) != 2 || len(table.Cells(0, "mptcp")) != 2 || len(table.Cells(0, "tcp")) != 2 {
		t.Errorf("points = %v, want two with both variants at each", table.Points)
	}
	if d := Diff(f, f); len(d.Metrics) != 8 || d.Metrics[0].Point != "rate_mbps 10" {
		t.Errorf("compared with itself: %+v", d.Metrics)
	}
}

func TestSummarise(t *testing.T) {
	got := Summarise([]float64{1, 2, 3, 4})
	if want := math.Sqrt(5.0 / 3.0); got.N != 4 || got.Mean != 2.5 || math.Abs(got.SD-want) > 1e-15 || got.Min != 1 || got.Max != 4 {
		t.Errorf("summary = %+v, want sd %v", got, want)
	}
	if got := Summarise([]float64{0.1, 0.1, 0.1}); got.Mean != 0.1 || got.SD != 0 {
		t.Errorf("summary of equal values = %+v", got)
	}
}

func TestPercentileIsNearestRank(t *testing.T) {
	sorted := []float64{15, 20, 35, 40, 50}
	for p, want := range map[float64]float64{0: 15, 5: 15, 20: 15, 21: 20, 30: 20, 40: 20, 50: 35, 95: 50, 100: 50} {
		if got := Percentile(sorted, p); got != want {
			t.Errorf("p%g = %g, want %g", p, got, want)
		}
	}
}
