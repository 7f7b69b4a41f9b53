package rung

import (
	"os"
	"testing"
)

func TestRungs(t *testing.T) {
	root := os.Geteuid() == 0
	for _, c := range []struct {
		asked     string
		netns, vm bool
	}{
		{"", false, false},
		{"netns", root, false},
		{"vm", root, true},
	} {
		t.Setenv("PLAIT_TEST", c.asked)
		if got := runs(t, Netns); got != c.netns {
			t.Errorf("PLAIT_TEST=%q: netns test runs: %v, want %v", c.asked, got, c.netns)
		}
		if got := runs(t, Long); got != c.vm {
			t.Errorf("PLAIT_TEST=%q: long test runs: %v, want %v", c.asked, got, c.vm)
		}
		if got := runs(t, VM); got != c.vm {
			t.Errorf("PLAIT_TEST=%q: vm test runs: %v, want %v", c.asked, got, c.vm)
		}
	}
}

// recorder stands in for a test, so that a skip under test is no skip of this one.
type recorder struct {
	testing.TB
	skipped bool
}

func (r *recorder) Helper()     {}
func (r *recorder) Skip(...any) { r.skipped = true }

// runs reports whether a test that needs the rung would run.
func runs(t *testing.T, need func(testing.TB)) bool {
	r := &recorder{TB: t}
	need(r)
	return !r.skipped
}
