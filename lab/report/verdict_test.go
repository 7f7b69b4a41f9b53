package report

import (
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
