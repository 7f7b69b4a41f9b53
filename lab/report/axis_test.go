package report

import (
	"math"
	"reflect"
	"testing"
)

func TestScale(t *testing.T) {
	for _, test := range []struct {
		min, max float64
		log      bool
		want     []float64
	}{
		{0, 41.4, false, []float64{0, 10, 20, 30, 40}},
		{28, 41.4, false, []float64{0, 10, 20, 30, 40}},      // bars and lines start at zero
		{95, 100, false, []float64{95, 96, 97, 98, 99, 100}}, // unless zero is far away
		{-3, 4, false, []float64{-4, -2, 0, 2, 4}},
		{5, 5, false, []float64{0, 1, 2, 3, 4, 5}},
		{0, 0, false, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{120, 1300, true, []float64{100, 200, 500, 1000, 2000}},
		{2, 30000, true, []float64{10, 100, 1000, 10000}},
	} {
		s := newScale(test.min, test.max, test.log)
		var got []float64
		for _, v := range s.ticks(5) {
			got = append(got, roundTo(v, 6))
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("ticks of %v to %v (log %v) = %v, want %v", test.min, test.max, test.log, got, test.want)
		}
		if s.min > test.min || s.max < test.max {
			t.Errorf("scale %v to %v does not hold %v to %v", s.min, s.max, test.min, test.max)
		}
	}
}

// TestScaleOfAlmostTheSame: of times in nanoseconds since 1970 a double tells 256 from each other, of the least numbers none.
func TestScaleOfAlmostTheSame(t *testing.T) {
	for _, test := range []struct {
		min, max float64
		log      bool
	}{{1767225600e9, 1767225600e9 + 256, false}, {-1767225600e9 - 256, -1767225600e9, false}, {5e-324, 1e-323, false}, {5e-324, 1e-323, true}, {-1e100, 1e100, false}} {
		s := newScale(test.min, test.max, test.log).on(0, 100)
		for _, v := range []float64{test.min, test.max} {
			if at := s.at(v); !(at >= 0 && at <= 100) {
				t.Errorf("%g of %g to %g is at %g", v, test.min, test.max, at)
			}
		}
		if n := len(s.ticks(5)); n > 20 {
			t.Errorf("%d ticks of %g to %g", n, test.min, test.max)
		}
	}
}

func TestScaleAt(t *testing.T) {
	linear := scale{min: 0, max: 10}.on(100, 200)
	log := scale{min: 1, max: 100, log: true}.on(0, 200)
	for _, test := range []struct{ got, want float64 }{
		{linear.at(5), 150}, {linear.at(-1), 100}, {linear.at(99), 200}, {log.at(10), 100}, {log.at(0), 0}, {log.at(100), 200},
	} {
		if test.got != test.want {
			t.Errorf("at = %v, want %v", test.got, test.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 28: "28", 41.388: "41.4", 5.634: "5.63", 0.03456: "0.0346", 999.97: "1000", 9.996: "10.0",
		10687.2: "10\u2009687", -345678: "-345\u2009678",
	} {
		if got := value(v); got != want {
			t.Errorf("value(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 10000: "10000", 250000: "250k", 1.5e6: "1.5M", -5: "−5", 0.25: "0.25"} {
		if got := tick(v); got != want {
			t.Errorf("tick(%v) = %q, want %q", v, got, want)
		}
	}
	if got := tick(math.Copysign(0, -1)); got != "0" {
		t.Errorf("tick of minus zero = %q", got)
	}
}

func TestSpreadHasTwoDigits(t *testing.T) {
	for sd, want := range map[float64]string{1.7678: "±1.8", 3.5355: "±3.5", 2: "±2.0", 0.99999: "±1.0", 0.661: "±0.66", 0.00283: "±0.0028", 12.34: "±12", 12345: "±12\u2009000"} {
		if got := spread(sd); got != want {
			t.Errorf("spread of %v: %s, want %s", sd, got, want)
		}
	}
}
