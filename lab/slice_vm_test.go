package lab

import (
	"testing"

	"plait.dev/plait/lab/experiment"
)

// A slice of plait's own experiments: every application, every kind of link, routers, events, the exactness of the lab, each lever of plait, and what is read from plait's output.
func TestExperiments(t *testing.T) {
	for _, e := range []struct {
		name    string
		options experiment.Options
	}{
		{"../docs/lab/guide/first.yaml", experiment.Options{}},
		{"../docs/lab/guide/compare.yaml", experiment.Options{Set: []string{"loss_percent=2"}, Seeds: 1}},
		{"../docs/lab/guide/event.yaml", experiment.Options{}},
		{"../docs/lab/guide/rivals.yaml", experiment.Options{}},
		{"../docs/lab/guide/routers.yaml", experiment.Options{}},
		{"tcp-single", experiment.Options{}},
		{"burst-clean", experiment.Options{}},
		{"burst-slow-start", experiment.Options{Set: []string{"size=65536"}}},
		{"exact-trace", experiment.Options{}},
		{"exact-emulator", experiment.Options{Set: []string{"rate_mbps=100", "rtt_ms=20"}}},
		{"exact-loss", experiment.Options{Set: []string{"pings=4000"}}},
		{"exact-events", experiment.Options{}},
		{"transports", experiment.Options{}},
		{"epe-routes", experiment.Options{Seeds: 2}},
		{"demo-exits", experiment.Options{Set: []string{"workload=stream"}}},
		{"congestion-shallow", experiment.Options{Set: []string{"rate_mbps=10", "queue_packets=10", "count=22"}}},
		{"congestion-sizes", experiment.Options{Set: []string{"burst_bytes=16384", "gap_ms=200"}, Seeds: 1}},
		{"congestion-anew", experiment.Options{Set: []string{"connections=1", "bytes=50000", "rate_mbps=20", "queue_packets=100", "rtt_ms=100", "loss_percent=0"}, Seeds: 1}},
		{"testdata/compressed.yaml", experiment.Options{Seeds: 1}},
		{"congestion-disturbed", experiment.Options{Set: []string{"by=reorder"}, Seeds: 1}},
		{"rtcp-table-bottleneck", experiment.Options{Set: []string{"rtt_ms=100", "rate_mbps=1", "queue_packets=10", "count=3"}}},
		{"egress-failure", experiment.Options{Set: []string{"failure=forward", "seconds=10", `skip=variant == "mptcpd"`}, Seeds: 1}},
		{"egress-unequal", experiment.Options{Set: []string{`case="5/50 Mbit/s"`, "a_mbps=5", "b_mbps=50", "b_delay_ms=10", "a_queue=100", "b_queue=100", "workload=stream", "seconds=8", `skip=variant in ["tcp_a", "tcp_b"]`}, Seeds: 1}},
		{"stripe-silent", experiment.Options{Set: []string{"event=silent", "a_mbps=8", "b_mbps=8", "seconds=10"}, Seeds: 1}},
		{"ack-useful", experiment.Options{Set: []string{"workload=get", "bytes=1000000", "link1_mbps=40", "rtt_ms=250", "queue_packets=500", "congestion=cubic"}, Seeds: 1}},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			holds(t, runFile(t, 1, e.name, e.options))
		})
	}
}
