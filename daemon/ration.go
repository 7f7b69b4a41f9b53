package daemon

import (
	"fmt"
	"time"
)

// So many lines about changes go to the log at once, and so many a second after that: a table is a million changes, and routes that come and go without end
// must not fill the disk (10 lines a second are some 100 MB a day).
const (
	linesAtOnce    = 1000
	linesPerSecond = 10
)

// ration lets some lines into the log and counts the others. Its zero value has written nothing yet.
type ration struct {
	rest    string    // where all lines are
	spent   time.Time // when all lines so far will be paid
	skipped int
}

// take returns what to write for a line: the line, something about those left out, or nothing.
func (r *ration) take(now time.Time, line string) string {
	const one = time.Second / linesPerSecond
	if r.spent.Before(now) {
		r.spent = now
	}
	if r.spent.Sub(now) > (linesAtOnce-1)*one {
		if r.skipped++; r.skipped > 1 {
			return ""
		}
		return fmt.Sprintf("more changes than the log should hold: what is over %d a second is left out here; %s", linesPerSecond, r.rest)
	}
	r.spent = r.spent.Add(one)
	if skipped := r.skipped; skipped > 0 {
		r.skipped = 0
		return fmt.Sprintf("%d changes were left out here\n%s", skipped, line)
	}
	return line
}
