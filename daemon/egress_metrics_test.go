package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
)

func TestExitMetrics(t *testing.T) {
	x := &exits{config: Egress{Exits: []egress.Exit{{Name: "a"}, {Name: "b"}}}, health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks()}
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

// Of networks the busiest are published, whatever there are, and those outside of all prefixes are not.
func TestNetworkMetrics(t *testing.T) {
	x := &exits{health: egress.NewHealth(), traffic: egress.NewTraffic[bpf.FlowKey](), networks: egress.NewNetworks()}
	var did []egress.FlowCount
	for i := range 100 {
		client := netip.AddrFrom4([4]byte{198, 51, byte(i), 7})
		did = append(did, egress.FlowCount{Exit: "a", Client: client, AckedBytes: uint64(1000 * (100 - i)), SentSegments: 10, Resent: 1, SRTTUs: 20_000})
	}
	x.networks.Look(slices.Values(did), func(client netip.Addr) netip.Prefix {
		if client.As4()[2] == 1 {
			return netip.Prefix{}
		}
		p, _ := client.Prefix(24)
		return p
	}, time.Second)
	for _, name := range []string{"plait_network_goodput_bps", "plait_network_rtt_seconds", "plait_network_resent_ratio"} {
		if n := testutil.CollectAndCount(exitsCollector{x}, name); n != publishedNetworks-1 {
			t.Errorf("%s: %d series, want %d", name, n, publishedNetworks-1)
		}
	}
	x.networks = egress.NewNetworks()
	x.networks.Look(slices.Values(did[:1]), func(netip.Addr) netip.Prefix { return netip.MustParsePrefix("198.51.0.0/24") }, time.Second)
	want := `
# HELP plait_network_goodput_bps Bits a second that clients have acknowledged, of the last half minute; of the 20 busiest networks and exits alone.
# TYPE plait_network_goodput_bps gauge
plait_network_goodput_bps{exit="a",prefix="198.51.0.0/24"} 800000
# HELP plait_network_resent_ratio Share of the segments sent that were sent again, 0 to 1, of the last half minute; of the 20 busiest networks and exits alone.
# TYPE plait_network_resent_ratio gauge
plait_network_resent_ratio{exit="a",prefix="198.51.0.0/24"} 0.1
# HELP plait_network_rtt_seconds Round-trip time, as plait_exit_rtt_seconds; of the 20 busiest networks and exits alone.
# TYPE plait_network_rtt_seconds gauge
plait_network_rtt_seconds{exit="a",prefix="198.51.0.0/24"} 0.02
`
	if err := testutil.CollectAndCompare(exitsCollector{x}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
