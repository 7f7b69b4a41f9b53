package lab

import (
	"testing"

	"plait.dev/plait/lab/experiment"
)

// A direction in which nothing happens to packets says so where the other one has a limit, and one that differs in what the words leave out has them, too: nothing said would stand for the same as there.
func TestDescribeDirections(t *testing.T) {
	for set, want := range map[string][2]string{
		"{ends: [client, server]}":                                                                                    {"", ""},
		"{ends: [client, server], rate_mbps: 10}":                                                                     {"10 Mbit/s", ""},
		"{ends: [client, server], forward: {rate_mbps: 10}}":                                                          {"10 Mbit/s", "unlimited"},
		"{ends: [client, server], backward: {rate_mbps: 10}}":                                                         {"unlimited", "10 Mbit/s"},
		"{ends: [client, server], backward: {delay_ms: 10.5}}":                                                        {"unlimited", "10.5 ms"},
		"{ends: [client, server], forward: {jitter: {mean_ms: 1}}, backward: {jitter: {mean_ms: 1, in_order: true}}}": {"jitter 1 ms", "jitter 1 ms"},
	} {
		e, err := experiment.Load("testdata/start.yaml", experiment.Options{Set: []string{"links={path: " + set + "}"}})
		if err != nil {
			t.Fatal(err)
		}
		about, err := describe(e, e.Cells()[0].Spec)
		if err != nil {
			t.Fatal(err)
		}
		if l := about.Topology.Links[0]; l.Forward != want[0] || l.Backward != want[1] {
			t.Errorf("%s: %q and %q, want %q", set, l.Forward, l.Backward, want)
		}
	}
}
