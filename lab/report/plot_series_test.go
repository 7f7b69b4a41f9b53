package report

import (
	"reflect"
	"slices"
	"testing"

	"plait.dev/plait/lab/result"
)

func TestMeanCurveGoesOnWhereARunHasEnded(t *testing.T) {
	runs := []*result.Series{
		{StartS: 1, StepS: 1, Values: []float64{2, 4}},
		{StartS: 1, StepS: 1, Values: []float64{4, 8, 10}},
	}
	got := meanCurve(seriesID{name: "a"}, runs, 4)
	want := curve{name: "a", xs: []float64{1, 2, 3}, ys: []float64{3, 6, 10}, lo: []float64{2, 4, 10}, hi: []float64{4, 8, 10}, parts: []float64{0.5, 0.5, 0.25}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStackAddsUp(t *testing.T) {
	got := stack([]curve{
		{name: "1", xs: []float64{1, 2, 3}, ys: []float64{5, 5, 5}, parts: []float64{1, 1, 1}},
		{name: "2", xs: []float64{2, 3}, ys: []float64{1, 2}, parts: []float64{1, 0.5}}, // joined later, and has ended in one of two runs
	})
	if want := []float64{5, 6, 6}; !reflect.DeepEqual(got[1].ys, want) || !reflect.DeepEqual(got[1].lo, got[0].ys) {
		t.Errorf("top = %v over %v, want %v", got[1].ys, got[1].lo, want)
	}
}

func TestSubflowsGetAPanelPerVariant(t *testing.T) {
	fig := draw(newSource(exits(), &colours{}), result.Plot{Kind: "series", Show: []string{"bulk/*.goodput_mbps"}})
	if len(fig.panels) != 4 || fig.panels[0].title != "a 30\u00a0Mbit/s, b 15\u00a0Mbit/s: mptcp" {
		t.Errorf("%d panels, first %q; want one per point for mptcp alone: tcp has no subflows", len(fig.panels), fig.panels[0].title)
	}
}

// TestStackedNumbersAreEachTheirOwn: what is drawn on top of another curve is not added to it in the file.
func TestStackedNumbersAreEachTheirOwn(t *testing.T) {
	f := exits()
	var second []float64 // of the second subflow, at the first point that has it
	for _, c := range f.Cells[3:6] {
		second = append(second, c.Series[2].Values[100])
	}
	stat := result.Summarise(second)
	want := []string{"a 30\u00a0Mbit/s, b 15\u00a0Mbit/s: mptcp", "subflow 2", "10.1", number(stat.Mean), number(stat.Min), number(stat.Max)}
	fig := draw(newSource(f, &colours{}), result.Plot{Kind: "series", Show: []string{"bulk/*.goodput_mbps"}})
	if !slices.ContainsFunc(fig.csv, func(row []string) bool { return slices.Equal(row, want) }) {
		t.Errorf("there is no row %q; the first ones are %q", want, fig.csv[:3])
	}
}

func TestLongSeriesIsThinnedWithoutLosingExtremes(t *testing.T) {
	cv := curve{}
	for i := range 100_000 {
		cv.xs, cv.ys = append(cv.xs, float64(i)), append(cv.ys, float64(i%7))
	}
	cv.ys[50_000] = 90
	f := frame{x: scale{min: 0, max: 100_000}.on(0, 300), y: scale{min: 0, max: 100}.on(100, 0)}
	points := f.pixels(cv, cv.ys)
	highest := 100.0
	for _, p := range points {
		highest = min(highest, p[1])
	}
	if len(points) > 4*301 || highest != 10 {
		t.Errorf("%d points, highest at %v px; want at most four in each of 301 columns, and the peak of 90 at 10 px", len(points), highest)
	}
}
