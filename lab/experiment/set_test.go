package experiment

import (
	"strings"
	"testing"
)

// refusesSet and acceptsSet load a file with --set.
func refusesSet(t *testing.T, text, want string, set ...string) {
	t.Helper()
	if _, err := loadText(t, text, Options{Set: set}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: %v, want %q", set, err, want)
	}
}

func acceptsSet(t *testing.T, text string, set ...string) {
	t.Helper()
	if _, err := loadText(t, text, Options{Set: set}); err != nil {
		t.Errorf("%v: %v", set, err)
	}
}

// TestSetInsideOfAParameter: a key set in what a parameter stands for would be all that is left of it.
func TestSetInsideOfAParameter(t *testing.T) {
	const text = `params: {down: {rate_mbps: 5, delay_ms: 10, queue_packets: 50}}
links: {l: {ends: [client, server], forward: $down, backward: null}}
timeline: [{at_s: 1, link: l, set: $down}]` + bulk
	refusesSet(t, text, "--set links.l.forward.queue_packets=200: links.l.forward is $down, so there is no queue_packets in it", "links.l.forward.queue_packets=200")
	refusesSet(t, text, "timeline.0.set is $down", "timeline.0.set.delay_ms=1")
	refusesSet(t, text, "links.l.mtu is 1400", "links.l.mtu=1400", "links.l.mtu.bytes=9")
	acceptsSet(t, text, "down={rate_mbps: 5, delay_ms: 10, queue_packets: 200}")
	acceptsSet(t, text, "links.l.backward.queue_packets=200")
	acceptsSet(t, text, "links.l.forward={queue_packets: 200}", "links.l.forward.delay_ms=3")
}
