package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
)

func TestExitMetrics(t *testing.T) {
	x := &exits{config: Egress{Exits: []egress.Exit{{Name: "a"}, {Name: "b"}}}, health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey]()}
	at := time.Unix(0, 0)
	x.traffic.Look(map[bpf.FlowKey]egress.FlowCount{}, at)
	x.traffic.Look(map[bpf.FlowKey]egress.FlowCount{{LocalPort: 1}: {Exit: "a", AckedBytes: 1000, SentSegments: 10, Resent: 1, SRTTUs: 20_000}}, at.Add(time.Second))
	x.health.Fail("b", netip.MustParseAddr("192.0.2.1"), at)
	want := `
# HELP plait_exit_acked_bytes_total Bytes clients have acknowledged, by the exit they left through.
# TYPE plait_exit_acked_bytes_total counter
plait_exit_acked_bytes_total{exit="a"} 1000
plait_exit_acked_bytes_total{exit="b"} 0
# HELP plait_exit_failed_clients Clients an exit is not offered to now because their packets did not arrive.
# TYPE plait_exit_failed_clients gauge
plait_exit_failed_clients{exit="a"} 0
plait_exit_failed_clients{exit="b"} 1
# HELP plait_exit_rtt_seconds Round-trip time of the last seconds, mean over the bytes acknowledged. Absent without traffic.
# TYPE plait_exit_rtt_seconds gauge
plait_exit_rtt_seconds{exit="a"} 0.02
# HELP plait_exit_segments_total TCP segments sent through an exit: new or resent.
# TYPE plait_exit_segments_total counter
plait_exit_segments_total{exit="a",kind="new"} 9
plait_exit_segments_total{exit="a",kind="resent"} 1
plait_exit_segments_total{exit="b",kind="new"} 0
plait_exit_segments_total{exit="b",kind="resent"} 0
`
	if err := testutil.CollectAndCompare(exitsCollector{x}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
