package report

import "testing"

func TestPercentile(t *testing.T) {
	sorted := []float64{1, 2, 3, 5}
	for p, want := range map[float64]float64{0: 1, 50: 2, 75: 3, 76: 5, 100: 5} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile %v = %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{7}, 95); got != 7 {
		t.Errorf("percentile of one = %v", got)
	}
}
