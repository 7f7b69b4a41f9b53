package signals

import (
	"math"
	"testing"
)

func TestHalfWidth(t *testing.T) {
	// information 400, tuning 400/7.94: sqrt((400+50.37783)*ln((400+50.37783)/(50.37783*0.0025)))/400
	want := math.Sqrt(450.377833753*math.Log(450.377833753/(50.377833753*0.0025))) / 400
	if got := HalfWidth(0.0025); math.Abs(got-want) > 1e-9*want {
		t.Errorf("half width at a standard error of 5 %%: got %.12g, want %.12g", got, want)
	}
	if w := math.Exp(HalfWidth(0.0025)) - 1; math.Abs(w-0.164) > 0.0005 {
		t.Errorf("a difference of %.4f shows at a standard error of 5 %%, want 0.164", w)
	}
}

func TestSquaredError(t *testing.T) {
	for _, c := range []struct {
		name               string
		a, na, b, nb, want float64
	}{
		{"two alike", 3, 10, 3, 10, 3./10 + 3./10},
		{"the smaller one seems all equal", 3, 300, 0, 15, 3 * 300. / 315 * (1./300 + 1./15)},
		{"the larger one seems all equal", 0, 300, 3, 15, 3. / 15},
	} {
		if got := SquaredError(c.a, c.na, c.b, c.nb); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: got %g, want %g", c.name, got, c.want)
		}
	}
}
