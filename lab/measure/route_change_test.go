package measure

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/lab/result"
)

func TestReport(t *testing.T) {
	const ms = time.Millisecond
	changes := []routeChange{
		{at: 10 * ms, table: 101, routes: 1}, // before any event
		{at: 1322 * ms, table: 101, routes: 0, text: "no route"},
		{at: 1423 * ms, table: 254, routes: 0},
		{at: 1523 * ms, table: 254, routes: 1},
		{at: 2320 * ms, table: 254, routes: 1},
		{at: 2330 * ms, table: 102, routes: 1},
		{at: 2340 * ms, table: 101, routes: 1},
		{at: 4424 * ms, table: 254, routes: 0}, // answers the third event; no EPE table does
		{at: 4524 * ms, table: 254, routes: 1},
		{at: 6030 * ms, table: 254, routes: 1},
		{at: 6040 * ms, table: 102, routes: 0},
		{at: 7500 * ms, table: 102, routes: 1},
	}
	events := []RouteEvent{{1000 * ms, Withdraw}, {2000 * ms, Announce}, {4000 * ms, Withdraw}, {5000 * ms, Announce}, {6000 * ms, Fail}, {7000 * ms, Recover}}
	out := &Outcome{Metrics: map[string]map[string]float64{}}
	report("server", netip.MustParsePrefix("2001:db8:c::/48"), changes, events, 10*time.Second, out)
	want := map[string][]float64{
		"server.announce_epe_ms": {330}, "server.announce_best_ms": {320},
		"server.withdraw_epe_ms": {322}, "server.withdraw_best_ms": {423, 424},
		"server.fail_epe_ms": {40}, "server.fail_best_ms": {30}, "server.recover_epe_ms": {500},
	}
	if len(out.Samples) != len(want) {
		t.Errorf("%d samples, want %d", len(out.Samples), len(want))
	}
	for _, s := range out.Samples {
		if !slices.Equal(s.Values, want[s.Name]) {
			t.Errorf("%s: %v, want %v", s.Name, s.Values, want[s.Name])
		}
	}
	m := out.Metrics["server"]
	if m["withdraw_best_ms"] != 423.5 || m["announce_epe_ms"] != 330 || m["fail_best_ms"] != 30 || m["hole_ms"] != 100 || m["route_changes"] != 12 {
		t.Errorf("metrics %v", m)
	}
	if mark := (result.Mark{AtS: 1.322, Text: "server: 2001:db8:c::/48 in table 101: no route"}); !slices.Contains(out.Marks, mark) || len(out.Marks) != len(changes) {
		t.Errorf("marks %v", out.Marks)
	}
}

// TestMarksKeepMilliseconds: what follows an event late in a long run is not drawn before it.
func TestMarksKeepMilliseconds(t *testing.T) {
	out := &Outcome{Metrics: map[string]map[string]float64{}}
	changes := []routeChange{{at: 12345678901 * time.Microsecond, table: 254, routes: 1}}
	report("server", netip.MustParsePrefix("2001:db8:c::/48"), changes, nil, 4*time.Hour, out)
	if at := out.Marks[0].AtS; at != 12345.678901 {
		t.Errorf("marked at %v s", at)
	}
}

func TestLongestHole(t *testing.T) {
	lost := routeChange{at: 2 * time.Second, table: 254}
	exit := routeChange{at: time.Second, table: 101}
	back := routeChange{at: 3 * time.Second, table: 254, routes: 2}
	for _, test := range []struct {
		changes []routeChange
		want    time.Duration
	}{
		{nil, 0},
		{[]routeChange{exit}, 0},
		{[]routeChange{exit, lost}, 8 * time.Second}, // up to the end
		{[]routeChange{lost, back}, time.Second},
		{[]routeChange{back}, 0}, // none before is no hole
	} {
		if got := longestHole(test.changes, 10*time.Second); got != test.want {
			t.Errorf("%v: %v, want %v", test.changes, got, test.want)
		}
	}
}
