package measure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/result"
)

// RouteEvent is an event of the timeline that routes answer to: an announcement, a withdrawal, a link's failure or recovery.
type RouteEvent struct {
	// At is when, since Config.Origin.
	At time.Duration
	// Kind is one of the constants below.
	Kind string
}

// Kinds of RouteEvent.
const (
	Announce = "announce"
	Withdraw = "withdraw"
	Fail     = "fail"    // carrier down, blackhole
	Recover  = "recover" // carrier up, blackhole none
)

// routeChange is an instant at which the routes to the prefix in one table changed.
type routeChange struct {
	at     time.Duration
	table  int
	routes int // to the prefix in this table from now on
	text   string
}

// describe names the routes of a table for a mark.
func describe(hops []hop) string {
	if len(hops) == 0 {
		return "no route"
	}
	var texts []string
	for _, h := range hops {
		texts = append(texts, h.via)
	}
	return strings.Join(texts, ", ")
}

// report adds what the changes of one node's routes mean; docs/lab/measure.md defines each metric.
func report(node string, prefix netip.Prefix, changes []routeChange, events []RouteEvent, end time.Duration, out *Outcome) {
	for _, c := range changes {
		table := "main"
		if c.table != unix.RT_TABLE_MAIN {
			table = fmt.Sprintf("table %d", c.table)
		}
		at := c.at.Round(time.Microsecond).Seconds() // six digits would not do for the milliseconds of a quarter of an hour
		out.Marks = append(out.Marks, result.Mark{AtS: at, Text: fmt.Sprintf("%s: %s in %s: %s", node, prefix, table, c.text)})
	}
	for _, kind := range []string{Announce, Withdraw, Fail, Recover} {
		for _, which := range []struct {
			name string
			main bool
		}{{"epe", false}, {"best", true}} {
			delays := answers(changes, events, kind, which.main)
			if len(delays) == 0 {
				continue
			}
			name := kind + "_" + which.name + "_ms"
			out.Samples = append(out.Samples, result.Samples{Name: node + "." + name, Unit: "ms", Values: delays})
			out.set(node, name, median(delays))
		}
	}
	out.set(node, "hole_ms", round(longestHole(changes, end).Seconds()*1000))
	out.set(node, "route_changes", float64(len(changes)))
}

// answers are the times in ms from each event of the kind to the first change of the main table, or of any EPE table,
// before the next event. An event without such a change has none.
func answers(changes []routeChange, events []RouteEvent, kind string, main bool) []float64 {
	var delays []float64
	for i, e := range events {
		if e.Kind != kind {
			continue
		}
		for _, c := range changes {
			if c.at < e.At || (c.table == unix.RT_TABLE_MAIN) != main {
				continue
			}
			if i+1 == len(events) || c.at < events[i+1].At {
				delays = append(delays, round((c.at-e.At).Seconds()*1000))
			}
			break
		}
	}
	return delays
}

// longestHole is the longest time the main table had no route after it had one, up to the end of the run. A change to no
// route tells by itself that there was one.
func longestHole(changes []routeChange, end time.Duration) time.Duration {
	var longest, since time.Duration
	inHole := false
	for _, c := range changes {
		if c.table != unix.RT_TABLE_MAIN {
			continue
		}
		if inHole {
			longest = max(longest, c.at-since)
		}
		inHole, since = c.routes == 0, c.at
	}
	if inHole {
		longest = max(longest, end-since)
	}
	return longest
}

// median of values, the mean of the two in the middle if their number is even.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return round((sorted[(n-1)/2] + sorted[n/2]) / 2)
}
