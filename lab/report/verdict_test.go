package report

import (
	"math"
	"testing"

	"plait.dev/plait/lab/result"
)

// TestTotalOfInterrupted: the page does not begin with a green mark, or with no bounds, where the bounds of an experiment are not evaluated.
func TestTotalOfInterrupted(t *testing.T) {
	complete := exits()
	complete.Bounds = complete.Bounds[:1]
	complete.Bounds[0].OK = true
	cut := exits()
	cut.Cells, cut.Bounds, cut.Incomplete = cut.Cells[:5], nil, "5 of 24"
	for _, test := range []struct {
		files []*result.File
		want  string
	}{
		{[]*result.File{complete, cut}, "the bound holds, 1 of 2 experiments incomplete"},
		{[]*result.File{cut}, "1 of 1 experiment incomplete"},
	} {
		total := page{Experiments: views(test.files, "files")}.Total()
		if got := total.String(); got != test.want || total.Class() != "bad" {
			t.Errorf("%q, %s; want %q, bad", got, total.Class(), test.want)
		}
	}
	if got, want := newVerdict(cut).String(), "incomplete: 5 of 24 runs, no bound is evaluated"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSidesDiffer: numbers that are not the same do not look it.
func TestSidesDiffer(t *testing.T) {
	for _, test := range []struct {
		left, right float64
		want        [2]string
	}{
		{1e7, 1e7 + 1, [2]string{"10000000", "10000001"}},
		{1e7, 1e7 + 0.5, [2]string{"10000000", "10000000.5"}},
		{27.123456789, 30, [2]string{"27.123", "30"}},
		{0.93000004, 0.93, [2]string{"0.93000004", "0.93"}},
		{math.Nextafter(0.3, 1), 0.3, [2]string{"0.30000000000000004", "0.3"}},
		{123456.7, 1e-9, [2]string{"123457", "1e-09"}},
		{1.0 / 3, 1.0 / 3, [2]string{"0.33333", "0.33333"}},
		{1e20, 0, [2]string{"1e+20", "0"}},
	} {
		if left, right := sides(result.Bound{Left: test.left, Right: test.right}); [2]string{left, right} != test.want {
			t.Errorf("%v, %v: %q, %q; want %q", test.left, test.right, left, right, test.want)
		}
	}
}
