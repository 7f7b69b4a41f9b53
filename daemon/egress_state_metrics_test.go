package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
)

// Each thing an operator wants to be woken for has a metric that says so.
func TestExitsStateMetrics(t *testing.T) {
	s := exitsState{EgressStatus: EgressStatus{Settled: true, MPTCP: &MPTCPStatus{Connections: 7}, Census: &mptcp.Census{MPTCP: 7, Fallback: 1, Plain: 2},
		Sessions: []SessionStatus{{Reflector: netip.MustParseAddr("2001:db8::1"), State: bgp.Established.String()}, {Reflector: netip.MustParseAddr("2001:db8::2"), State: bgp.Idle.String()}},
		Exits:    []ExitStatus{{Name: "a", Routes: 10}, {Name: "b"}},
		Refused:  []RefusedStatus{{From: "a", Reason: "one", Routes: 2}, {From: "a", Reason: "other", Routes: 3}}},
		full: map[string]bool{"b": true}, browned: map[string]int{"a": 4}, aside: 1, moved: true}
	want := []string{
		"plait_egress_clients_connections kind=fallback 1", "plait_egress_clients_connections kind=mptcp 7", "plait_egress_clients_connections kind=plain 2",
		"plait_egress_connections 7", "plait_egress_moved_exceeded 1", "plait_egress_paths_set_aside 1", "plait_egress_refused_routes from=a 5",
		"plait_egress_session_up reflector=2001:db8::1 1", "plait_egress_session_up reflector=2001:db8::2 0", "plait_egress_settled 1",
		"plait_exit_routes exit=a 10", "plait_exit_routes exit=b 0", "plait_exit_standing_by exit=a why=cap 0", "plait_exit_standing_by exit=a why=loss 4",
		"plait_exit_standing_by exit=b why=cap 1", "plait_exit_standing_by exit=b why=loss 0",
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(exitsStateCollector{func() exitsState { return s }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			got = append(got, fmt.Sprint(line, " ", m.GetGauge().GetValue()))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
