package traffic

import (
	"math"
	"testing"
)

func TestDeviationIsTheSamples(t *testing.T) {
	if got, want := deviation([]float64{2, 4, 4, 4, 5, 5, 7, 9}), math.Sqrt(32.0/7); math.Abs(got-want) > 1e-12 {
		t.Errorf("deviation %g, want %g", got, want)
	}
}

func TestDescribe(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	got := map[string]float64{}
	describe(got, "x_", values, "mean_ms", "min_ms", "p50_ms", "p99_ms", "max_ms")
	for name, want := range map[string]float64{"x_mean_ms": 2.5, "x_min_ms": 1, "x_p50_ms": 2, "x_p99_ms": 4, "x_max_ms": 4} {
		if got[name] != want {
			t.Errorf("%s = %g, want %g", name, got[name], want)
		}
	}
	if values[0] != 4 {
		t.Error("the values were put into another order")
	}
	describe(got, "none_", nil, "mean_ms")
	if _, ok := got["none_mean_ms"]; ok {
		t.Error("a mean of nothing")
	}
	describe(got, "one_", []float64{3}, "mean_ms", "sd_ms")
	if _, ok := got["one_sd_ms"]; ok || got["one_mean_ms"] != 3 {
		t.Errorf("of one value: %v", got)
	}
}
