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
	s := Jain(0,
		halves(0.5, 4, 6, 6, 6, 0, 0, 9, 9, 1, 1),
		halves(0.5, 5, 5, 2, 2, 0, 0, 0, 0))
	want := []float64{1, round(8.0 * 8 / (2 * (36 + 4))), 0.5}
	if !slices.Equal(times(s.Index), []float64{1, 2, 4}) || !slices.Equal(s.Index.Values, want) {
		t.Errorf("index %v at %v, want %v", s.Index.Values, times(s.Index), want)
	}
	if math.Abs(s.Mean-(1+0.8+0.5)/3) > 1e-12 || s.Lowest != 0.5 {
		t.Errorf("mean %v, lowest %v", s.Mean, s.Lowest)
	}
}

func times(s result.Series) (at []float64) {
	for i := range s.Values {
		at = append(at, s.Time(i))
	}
	return at
}

// Where no second is left out the index is measured in even steps, and drawn as what it is made of: each value is that of the second that ends there.
func TestJainTimes(t *testing.T) {
	// 0.1 s steps are not exact in binary: the tenth value still belongs to the first second.
	a := result.Series{StartS: 0.1, StepS: 0.1, Values: slices.Repeat([]float64{1}, 20)}
	b := result.Series{TimesS: []float64{1, 2}, Values: []float64{1, 3}}
	index := Jain(0, a, b).Index
	if index.StepS != 1 || !slices.Equal(times(index), []float64{1, 2}) || !slices.Equal(index.Values, []float64{1, 0.8}) {
		t.Errorf("index %v at %v", index.Values, times(index))
	}
	if later := Jain(0.5, a, b); !slices.Equal(times(later.Index), []float64{2}) || later.Mean != 0.8 {
		t.Errorf("from 0.5 s on: %v, mean %v", times(later.Index), later.Mean)
	}
}

// A second in which a series begins or ends is none in which all have run: what one has in a part of it is no share of the second.
func TestJainOfWholeSeconds(t *testing.T) {
	long, short := halves(0.5, 4, 4, 4, 4, 4, 4, 4, 4), halves(1, 0, 4, 4, 4, 4, 1) // from 0.5 to 3.5 s
	s := Jain(0, long, short)
	if !slices.Equal(times(s.Index), []float64{2, 3}) || s.Lowest != 1 || s.RatioMax != 1 {
		t.Errorf("index %v at %v, largest ratio %v", s.Index.Values, times(s.Index), s.RatioMax)
	}
	long.StartS, short.StartS = 0, 1.5 // a connection that was there before has a value at time 0
	if s := Jain(0, long, short); !slices.Equal(times(s.Index), []float64{2, 3}) {
		t.Errorf("index at %v", times(s.Index))
	}
}

func TestJainOfNothing(t *testing.T) {
	for _, series := range [][]result.Series{nil, {halves(0.5, 0, 0), halves(0.5, 0, 0)}} {
		if s := Jain(0, series...); len(s.Index.Values) != 0 || !math.IsNaN(s.Mean) || !math.IsNaN(s.Lowest) {
			t.Errorf("%v: %v", series, s)
		}
	}
}

// The ratio is that of the last to the first, in either order of size; a second without a packet has the ratio of one.
func TestShareRatio(t *testing.T) {
	first, last := halves(0.5, 4, 4, 2, 2, 0, 0, 3, 3), halves(0.5, 1, 1, 4, 4, 0.06, 0.06, 7, 7)
	s := Jain(0, first, last)
	if math.Abs(s.RatioMax-5) > 1e-9 || s.DoublePercent != 50 { // 1/4, 2, 0.06/0.012, 7/3
		t.Errorf("largest ratio %v, above 2 in %v %%", s.RatioMax, s.DoublePercent)
	}
}
