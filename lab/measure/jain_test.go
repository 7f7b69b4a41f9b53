package measure

import (
	"math"
	"slices"
	"testing"

	"plait.dev/plait/lab/result"
)

func halves(startS float64, values ...float64) result.Series {
	return result.Series{StartS: startS, StepS: 0.5, Values: values}
}

func TestJain(t *testing.T) {
	// Seconds: equal; 3:1; all zero; one alone; then only the first has values.
	index, mean, lowest := Jain(
		halves(0.5, 4, 6, 6, 6, 0, 0, 9, 9, 1, 1),
		halves(0.5, 5, 5, 2, 2, 0, 0, 0, 0))
	want := []float64{1, round(8.0 * 8 / (2 * (36 + 4))), 0.5}
	if !slices.Equal(index.TimesS, []float64{1, 2, 4}) || !slices.Equal(index.Values, want) {
		t.Errorf("index %v at %v, want %v", index.Values, index.TimesS, want)
	}
	if math.Abs(mean-(1+0.8+0.5)/3) > 1e-12 || lowest != 0.5 {
		t.Errorf("mean %v, lowest %v", mean, lowest)
	}
}

func TestJainTimes(t *testing.T) {
	// 0.1 s steps are not exact in binary: the tenth value still belongs to the first second.
	a := result.Series{StartS: 0.1, StepS: 0.1, Values: slices.Repeat([]float64{1}, 20)}
	b := result.Series{TimesS: []float64{1, 2}, Values: []float64{1, 3}}
	index, _, _ := Jain(a, b)
	if !slices.Equal(index.TimesS, []float64{1, 2}) || !slices.Equal(index.Values, []float64{1, 0.8}) {
		t.Errorf("index %v at %v", index.Values, index.TimesS)
	}
}

func TestJainOfNothing(t *testing.T) {
	for _, series := range [][]result.Series{nil, {halves(0.5, 0, 0), halves(0.5, 0, 0)}} {
		if index, mean, lowest := Jain(series...); len(index.Values) != 0 || !math.IsNaN(mean) || !math.IsNaN(lowest) {
			t.Errorf("%v: %v %v %v", series, index, mean, lowest)
		}
	}
}
