package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/daemon"
)

// What leaves by no exit has a line of its own, so that the shares add up.
func TestPrintExits(t *testing.T) {
	var out strings.Builder
	s := daemon.EgressStatus{Mode: daemon.On, Settled: true, Exits: []daemon.ExitStatus{{Name: "a", Traffic: &daemon.TrafficStatus{SharePercent: 26}}}}
	for _, others := range []*daemon.TrafficStatus{nil, {SharePercent: 74}} {
		out.Reset()
		s.Others = others
		printExits(&out, s)
		if got := strings.Contains(out.String(), "\n-     0      0.0             74 "); got != (others != nil) {
			t.Errorf("others %v: got\n%s", others, out.String())
		}
	}
}

// An exit that is out is told of, with when it may come back.
func TestPrintExitOut(t *testing.T) {
	var out strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	printExits(&out, daemon.EgressStatus{Mode: daemon.On, Settled: true, Exits: []daemon.ExitStatus{{Name: "a", Out: &daemon.OutStatus{Since: at, HeldUntil: at.Add(5 * time.Second)}}, {Name: "b"}}})
	if got := out.String(); strings.Count(got, " is out ") != 1 || !strings.Contains(got, "\nexit a is out since 03:04:05: ") || !strings.Contains(got, "not before 03:04:10") {
		t.Errorf("got\n%s", got)
	}
}

// An explanation does not name exits that connections do not get.
func TestPrintMoved(t *testing.T) {
	e := daemon.Explanation{Ways: []daemon.WayStatus{{Exit: "a", Prefix: netip.MustParsePrefix("2001:db8:c::/48")}}, Services: []daemon.ServiceStatus{{Carry: []string{"a", "b"}, Reason: "strategy throughput"}}}
	for _, e.Moved = range []bool{false, true} {
		var out strings.Builder
		printExplanation(&out, e)
		if got := strings.Contains(out.String(), "connections that begin now: data by BGP's best path alone"); got != e.Moved {
			t.Errorf("moved %v: got\n%s", e.Moved, out.String())
		}
	}
}

// A best path by an exit that is none of the configuration has no name, and is told of all the same.
func TestPrintMainElsewhere(t *testing.T) {
	way := daemon.WayStatus{Exit: "b", Prefix: netip.MustParsePrefix("2001:db8:c::/48")}
	for main, want := range map[string]string{
		"":  "BGP's best path leaves by none of these: connections begin there\nall connections: data by the best path's exit, b: strategy throughput\n",
		"b": "all connections: data by b: strategy throughput\n",
	} {
		carry := []string{"", "b"}
		if main != "" {
			carry = []string{"b"}
		}
		var out strings.Builder
		printExplanation(&out, daemon.Explanation{Main: main, Ways: []daemon.WayStatus{way}, Services: []daemon.ServiceStatus{{Carry: carry, Reason: "strategy throughput"}}})
		if got := out.String(); !strings.HasSuffix(got, want) || strings.Contains(got, "none of these") != (main == "") {
			t.Errorf("main %q: got\n%s", main, got)
		}
	}
}

func TestPrintSession(t *testing.T) {
	var out strings.Builder
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	printSession(&out, daemon.SessionStatus{Reflector: netip.MustParseAddr("2001:db8:1::2"), State: "established", Since: at.Add(time.Hour), LastError: "refused", ErrorAt: at})
	if want := "2001:db8:1::2: established since 2026-01-02 04:04:05\n  last error, 2026-01-02 03:04:05: refused\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	printSession(&out, daemon.SessionStatus{Reflector: netip.MustParseAddr("2001:db8:1::2"), State: "idle", Since: at, Routes: map[string]int{"IPv6 unicast": 3, "VPNv6": 2}, Kept: map[string]int{"VPNv6": 2}})
	if want := "2001:db8:1::2: idle, down since 2026-01-02 03:04:05\n  IPv6 unicast: 3 routes\n  VPNv6: 2 routes, 2 of them kept of a session that was lost\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestMeasured(t *testing.T) {
	if got := measured(0, 0) + " " + measured(12.34, 1); got != "- 12.3" {
		t.Errorf("got %s", got)
	}
}
