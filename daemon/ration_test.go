package daemon

import (
	"strings"
	"testing"
	"time"
)

// A thousand lines are written at once, then ten a second; how many are missing is said.
func TestRation(t *testing.T) {
	r := newRation("elsewhere")
	now := time.Unix(1000, 0)
	count := func(lines int) (written int, last string) {
		for range lines {
			if said := r.take(now, "a line"); strings.HasSuffix(said, "a line") {
				written, last = written+1, said
			} else if said != "" {
				last = said
			}
		}
		return written, last
	}
	if written, last := count(linesAtOnce); written != linesAtOnce || last != "a line" {
		t.Fatalf("%d of the first %d lines, the last %q", written, linesAtOnce, last)
	}
	if written, last := count(5000); written != 0 || !strings.Contains(last, "left out here") {
		t.Errorf("%d of 5000 more, and then %q", written, last)
	}
	now = now.Add(time.Second)
	if said := r.take(now, "a line"); said != "5000 changes were left out here\na line" {
		t.Errorf("a second later: %q", said)
	}
	if written, _ := count(100); written != linesPerSecond-1 {
		t.Errorf("%d more in this second, want %d", written, linesPerSecond-1)
	}
	now = now.Add(time.Hour)
	if written, _ := count(2000); written != linesAtOnce {
		t.Errorf("%d at once after an hour, want %d", written, linesAtOnce)
	}
}
