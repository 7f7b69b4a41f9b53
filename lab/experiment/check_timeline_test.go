package experiment

import "testing"

// TestEventsOfNothing: an event that changes nothing would be marked in the plots.
func TestEventsOfNothing(t *testing.T) {
	file := func(event string) string {
		return "matrix: {delay: [null, 9]}\nparams: {change: {}, other: 1}\nlinks: {a: {ends: [client, server], loss_percent: $other, forward: $change, delay_ms: $delay}}" + bulk +
			"timeline: [{at_s: 1, link: a, " + event + "}]\n"
	}
	refuses(t, file("set: {}"), "test.yaml:8:12: timeline.0: changes nothing, for set has no parameter of the link")
	refuses(t, file("forward: {}, backward: {}"), "changes nothing, for forward, backward has no parameter")
	refuses(t, file("set: "), "an event of a link does one thing (set, forward, backward, blackhole, carrier); it has none")
	refuses(t, file("carrier: "), "it has none")
	for _, right := range []string{
		"set: {delay_ms: 3}", "forward: {}, backward: {delay_ms: 3}", "set: null, carrier: down", // null is as if it were absent
		"set: {delay_ms: $delay}", "set: $change", // another cell may have more
	} {
		accepts(t, file(right))
	}
}
