package report

import (
	"slices"
	"testing"

	"plait.dev/plait/lab/result"
)

// TestHeatOfParametersThatGoTogether: a parameter that changes with one along an axis makes no panels of a row or column each; another one does,
// and one that the plot's points have in common is told.
func TestHeatOfParametersThatGoTogether(t *testing.T) {
	f := &result.File{Experiment: result.Experiment{Matrix: []string{"rate", "delay", "queue", "loss"}}}
	for i, rate := range []int{10, 50, 100} {
		for _, queue := range []int{20, 200} {
			for _, loss := range []int{0, 1} {
				f.Cells = append(f.Cells, result.Cell{Variant: "run", Params: map[string]any{"rate": rate, "delay": 40 - i, "queue": queue, "loss": loss},
					Metrics: map[string]map[string]float64{"file": {"goodput_mbps": float64(rate)}}})
			}
		}
	}
	s := newSource(f, &colours{})
	lossless := []map[string]any{{"loss": 0}}
	for _, test := range []struct {
		plot result.Plot
		want []string // the panels
	}{
		{result.Plot{X: "rate", Y: "queue"}, []string{"loss 0, Mbit/s", "loss 1, Mbit/s"}},
		{result.Plot{X: "rate", Y: "queue", Points: lossless}, []string{"loss 0, Mbit/s"}},
		{result.Plot{X: "delay", Points: lossless}, []string{"loss 0, queue 20, Mbit/s", "loss 0, queue 200, Mbit/s"}},
		{result.Plot{X: "queue", Y: "loss"}, []string{"delay 40, rate 10, Mbit/s", "delay 39, rate 50, Mbit/s", "delay 38, rate 100, Mbit/s"}},
	} {
		test.plot.Kind, test.plot.Show = "heat", []string{"file.goodput_mbps"}
		fig := plotHeat(s, test.plot)
		var titles []string
		for _, p := range fig.panels {
			titles = append(titles, p.title)
		}
		if !slices.Equal(titles, test.want) {
			t.Errorf("%+v: panels %q, want %q", test.plot, titles, test.want)
		}
	}
}
