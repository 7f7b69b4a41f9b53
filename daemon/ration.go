package daemon

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// So many lines about changes go to the log at once, and so many a second after that: a table is a million changes, and routes that come and go without end
// must not fill the disk (10 lines a second are some 100 MB a day).
const (
	linesAtOnce    = 1000
	linesPerSecond = 10
)

// ration lets some lines into the log and counts the others.
type ration struct {
	*rate.Limiter
	rest    string // where all lines are
	skipped int
}

func newRation(rest string) ration {
	return ration{Limiter: rate.NewLimiter(linesPerSecond, linesAtOnce), rest: rest}
}

// take returns what to write for a line: the line, something about those left out, or nothing.
func (r *ration) take(now time.Time, line string) string {
	if !r.AllowN(now, 1) {
		if r.skipped++; r.skipped > 1 {
			return ""
		}
		return fmt.Sprintf("more changes than the log should hold: what is over %d a second is left out here; %s", linesPerSecond, r.rest)
	}
	if skipped := r.skipped; skipped > 0 {
		r.skipped = 0
		return fmt.Sprintf("%d changes were left out here\n%s", skipped, line)
	}
	return line
}
