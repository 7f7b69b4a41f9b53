package signals

import (
	"math"
	"testing"
)

func TestHalfWidth(t *testing.T) {
	// information 400, tuning 400/7.94: sqrt((400+50.37783)*ln((400+50.37783)/(50.37783*0.0025)))/400
	want := math.Sqrt(450.377833753*math.Log(450.377833753/(50.377833753*0.0025))) / 400
	if got := halfWidth(0.0025); math.Abs(got-want) > 1e-9*want {
		t.Errorf("half width at a standard error of 5 %%: got %.12g, want %.12g", got, want)
	}
	if w := math.Exp(halfWidth(0.0025)) - 1; math.Abs(w-0.164) > 0.0005 {
		t.Errorf("a difference of %.4f shows at a standard error of 5 %%, want 0.164", w)
	}
}

// groupOf has the values of one connection in each list.
func groupOf(connections ...[]float64) (g Group) {
	for _, values := range connections {
		var sum float64
		for i, x := range values {
			g.Add(x, float64(i), sum)
			sum += x
		}
	}
	return g
}

// The sums are those of their definitions, written out.
func TestGroup(t *testing.T) {
	got := groupOf([]float64{1, 2, 3}, []float64{-4}, []float64{5, 0.5})
	want := Group{Connections: 3, Samples: 6, Total: 6 - 4 + 5.5, SamplesSquared: 9 + 1 + 4, TotalsSquared: 36 + 16 + 5.5*5.5, Products: 3*6 - 4 + 2*5.5}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if m := got.Mean(); m != 7.5/6 {
		t.Errorf("mean %v, want 1.25", m)
	}
	if w := got.worth(); w != 36./14 {
		t.Errorf("worth %v connections, want 36/14", w)
	}
	if m := (Group{}).Mean(); m != 0 {
		t.Errorf("mean of nothing: %v", m)
	}
	// Three at the mean of 1.25 would come to 3.75: 6 is 2.25 more, -4 is 5.25 less than one, 5.5 is 3 more than two.
	if d := got.deviations(0.5); math.Abs(d-(2.25*2.25+5.25*5.25+3*3+0.5*14)) > 1e-12 {
		t.Errorf("deviations %v", d)
	}
}

func TestSquaredError(t *testing.T) {
	alike := []float64{1, 1, 3, 3} // 2 on average, deviations 4, variance 4/3
	single := func(values []float64) (g Group) {
		for _, x := range values {
			g.Add(x, 0, 0)
		}
		return g
	}
	for _, c := range []struct {
		name string
		a, b Group
		want float64
	}{
		{"two alike", single(alike), single(alike), 4./3/4 + 4./3/4},
		{"the smaller one seems all equal", single(alike), single([]float64{2, 2}), 4. / 4 * (1./4 + 1./2)},
		{"the larger one seems all equal", single([]float64{2, 2, 2, 2, 2, 2}), single(alike), 4. / 3 / 4},
		{"two samples each that are one", groupOf([]float64{1, 1}, []float64{3, 3}), groupOf([]float64{1, 1}, []float64{3, 3}), 2./2 + 2./2},
		{"fewer samples each in one", groupOf([]float64{1, 1, 1}, []float64{1, 1, 1}, []float64{3, 3, 3}, []float64{3, 3, 3}), single(alike), 36./4/3/4 + 4./3/4}, // 2 each in both
		{"two samples each that are two", groupOf([]float64{1, 3}, []float64{3, 1}), groupOf([]float64{1, 3}, []float64{3, 1}), 0},
	} {
		if got := squaredError(c.a, c.b, 0); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: got %g, want %g", c.name, got, c.want)
		}
		if got := squaredError(c.b, c.a, 0); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s, the other way: got %g, want %g", c.name, got, c.want)
		}
	}
}

// There is an interval from ten connections on; fewer are those of which a few have nearly all samples, and the smaller group has none of those yet.
func TestIntervalOfFew(t *testing.T) {
	of := func(connections int) (g Group) {
		for i := range connections {
			g.Add(float64(i%2), 0, 0)
		}
		return g
	}
	nine, ten, many := of(9), of(10), of(1000)
	few := many
	for n := range 1000 {
		few.Add(0, float64(n+1), 0) // one has as many samples as all others
	}
	var wild Group
	for i := range 10 {
		wild.Add(float64(i%2)*20, 0, 0) // a factor of half a billion
	}
	inconsistent := Group{Connections: 1, Samples: 100, SamplesSquared: 100} // counters read while they change
	for _, c := range []struct {
		name string
		a, b Group
		want bool
	}{{"9", nine, many, false}, {"9, the other way", many, nine, false}, {"10", ten, many, true}, {"a few of many", few, many, false}, {"more worth than there are", inconsistent, many, false}, {"all or nothing", wild, many, false}, {"none", Group{}, many, false}, {"neither", Group{}, Group{}, false}} {
		low, high, ok := Interval(c.a, c.b, 0)
		if ok != c.want || !ok && (low != 0 || high != 0) || ok && !(low < 0 && high > 0) {
			t.Errorf("%s: %v to %v, %v", c.name, low, high, ok)
		}
	}
}
