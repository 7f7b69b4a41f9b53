package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
)

// Each thing an operator wants to be woken for has a metric that says so.
func TestExitsStateMetrics(t *testing.T) {
	managed := 7
	s := exitsState{settled: true, lacking: true, managed: &managed, census: &mptcp.Census{MPTCP: 7, Fallback: 1, Plain: 2}, exits: []string{"a", "b"}, refused: map[string]uint64{"a": 5},
		sessions: []SessionStatus{{Reflector: netip.MustParseAddr("2001:db8::1"), State: bgp.Established.String(), Routes: map[string]int{"VPNv6": 10, "VPNv4": 1}},
			{Reflector: netip.MustParseAddr("2001:db8::2"), State: bgp.Idle.String()}},
		full: map[string]bool{"b": true}, out: map[string]bool{"a": true}, browned: map[egress.Why]map[string]int{egress.Loses: {"a": 4}, egress.Late: {"b": 2}}, shared: map[string]int{"b": 3}, aside: map[netip.Prefix]bool{netip.MustParsePrefix("2001:db8:c::/48"): true}, moved: true}
	want := []string{
		"plait_egress_clients_connections kind=fallback 1", "plait_egress_clients_connections kind=mptcp 7", "plait_egress_clients_connections kind=plain 2",
		"plait_egress_connections 7", "plait_egress_lacking 1", "plait_egress_moved_exceeded 1", "plait_egress_prefixes_set_aside 1", "plait_egress_refused_routes from=a 5",
		"plait_egress_routes reflector=2001:db8::1 11", "plait_egress_routes reflector=2001:db8::2 0",
		"plait_egress_session_up reflector=2001:db8::1 1", "plait_egress_session_up reflector=2001:db8::2 0", "plait_egress_settled 1",
		"plait_exit_standing_by exit=a why=cap 0", "plait_exit_standing_by exit=a why=late 0", "plait_exit_standing_by exit=a why=loss 4", "plait_exit_standing_by exit=a why=out 1", "plait_exit_standing_by exit=a why=shared 0",
		"plait_exit_standing_by exit=b why=cap 1", "plait_exit_standing_by exit=b why=late 2", "plait_exit_standing_by exit=b why=loss 0", "plait_exit_standing_by exit=b why=out 0", "plait_exit_standing_by exit=b why=shared 3",
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

// Prometheus gets all of it from a lever at work, and no metric of one collector is another's.
func TestScrapeExits(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	x.setAside(netip.MustParsePrefix("2001:db8:c::/48"), "a", 2)
	x.full["b"] = true
	ctx, stop := context.WithCancel(t.Context())
	var err error
	if x.speaker, err = bgp.Start(ctx, bgp.Config{AS: 65000, RouterID: netip.MustParseAddr("192.0.2.1"), Reflectors: []bgp.Reflector{{Address: netip.MustParseAddr("127.0.0.1")}}, Log: slog.New(slog.DiscardHandler)}, func(bgp.Event) {}); err != nil {
		t.Fatal(err)
	}
	defer x.speaker.Wait()
	defer stop()
	answer := httptest.NewRecorder()
	metricsHandler(func() Status { return Status{} }, x, nil).ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{"plait_egress_settled 0\n", "plait_egress_session_up{reflector=\"127.0.0.1\"} 0\n", "plait_egress_prefixes_set_aside 1\n", "plait_exit_standing_by{exit=\"b\",why=\"cap\"} 1\n", "plait_exit_acked_bytes_total{exit=\"c\"} 0\n"} {
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%d, no %q in\n%s", answer.Code, want, answer.Body)
		}
	}
}
