package lab

import (
	"testing"

	"plait.dev/plait/lab/experiment"
)

// A slice of plait's own experiments: every application, every kind of link, routers, events and the exactness of the lab.
func TestExperiments(t *testing.T) {
	for _, e := range []struct {
		name    string
		options experiment.Options
	}{
		{"../docs/lab/guide/first.yaml", experiment.Options{}},
		{"tcp-single", experiment.Options{}},
		{"burst-clean", experiment.Options{}},
		{"burst-slow-start", experiment.Options{}},
		{"exact-trace", experiment.Options{}},
		{"exact-loss", experiment.Options{}},
		{"exact-events", experiment.Options{}},
		{"transports", experiment.Options{}},
		{"epe-routes", experiment.Options{Seeds: 2}},
		{"demo-exits", experiment.Options{Set: []string{"workload=stream"}}},
		{"congestion-shallow", experiment.Options{Set: []string{"rate_mbps=10", "queue_packets=10", "count=22"}}},
		{"congestion-revert", experiment.Options{Seeds: 1}},
	} {
		t.Run(e.name, func(t *testing.T) { holds(t, runFile(t, 0, e.name, e.options)) })
	}
}
