package report

import (
	"reflect"
	"testing"
)

func TestDistribution(t *testing.T) {
	got := distribution([]float64{4, 1, 2, 2}, "a", 0)
	if want := []float64{1, 1, 2, 2, 4}; !reflect.DeepEqual(got.xs, want) {
		t.Errorf("xs = %v, want %v", got.xs, want)
	}
	if want := []float64{0, 25, 50, 75, 100}; !reflect.DeepEqual(got.ys, want) {
		t.Errorf("ys = %v, want %v", got.ys, want)
	}
	var many []float64
	for i := range 12_345 {
		many = append(many, float64(i))
	}
	long := distribution(many, "a", 0)
	if n := len(long.xs); n > maxSteps+20 || long.xs[n-1] != 12_344 || long.ys[n-1] != 100 {
		t.Errorf("%d steps, last at %v, %v %%", n, long.xs[n-1], long.ys[n-1])
	}
}
