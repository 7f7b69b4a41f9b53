package measure

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

func TestFlowRecord(t *testing.T) {
	const every = 100 * time.Millisecond
	f := &flow{first: -1}
	f.record(3, &diag{cwnd: 10, ssthresh: tcpInfiniteSsthresh, unacked: 4, rttUS: 20500, bytesAcked: 125000, resent: 3}, every)
	f.record(6, &diag{cwnd: 20, ssthresh: 15, unacked: 9, sacked: 2, rttUS: 30000, bytesAcked: 500000, resent: 5, spurious: 1}, 3*every) // 4 and 5 were left out
	// 125000 bytes in 0.1 s are 10 Mbit/s, 375000 in 0.3 s again.
	want := [len(quantities)][]float64{{10, 20, 20, 20}, {0, 15, 15, 15}, {4, 7, 7, 7}, {20.5, 30, 30, 30}, {10, 10, 10, 10}, {3, 2, 0, 0}, {0, 1, 0, 0}}
	for q := range want {
		if f.first != 3 || !slices.Equal(f.values[q], want[q]) {
			t.Errorf("%s from %d: %v, want %v", quantities[q].name, f.first, f.values[q], want[q])
		}
	}
}

// Subflows are numbered by their addresses, connections by their appearance.
func TestFlowNumbers(t *testing.T) {
	for _, test := range []struct {
		mptcp bool
		first string
	}{{true, "2001:db8::a -> 2001:db8::2"}, {false, "2001:db8::b -> 2001:db8::2"}} {
		s := &sockets{cfg: Config{Every: time.Second, Apps: []App{{Name: "x", MPTCP: test.mptcp}}}, flows: map[uint64]*flow{}, most: []int{2}}
		for i, local := range []string{"2001:db8::b", "2001:db8::a"} {
			d := &diag{family: 10, cookie: uint64(i), local: netip.MustParseAddr(local).As16(), remote: netip.MustParseAddr("2001:db8::2").As16()}
			s.flow(0, d).record(i, d, time.Second)
		}
		out := &Outcome{Metrics: map[string]map[string]float64{}}
		if err := s.finish(0, out); err != nil {
			t.Fatal(err)
		}
		if got := find(t, out, "x/1.cwnd_packets").Label; got != test.first {
			t.Errorf("MPTCP %v: the first is %q, want %q", test.mptcp, got, test.first)
		}
		if _, counted := out.Metrics["x"]["subflows"]; counted != test.mptcp {
			t.Errorf("MPTCP %v: subflows counted: %v", test.mptcp, counted)
		}
	}
}

// A number of subflows that nobody counted is none: not 0.
func TestSubflowsNotSeen(t *testing.T) {
	cfg := Config{Apps: []App{{Name: "short", FromNS: "none", MPTCP: true}}}
	s := &sockets{cfg: cfg, count: map[connection]int{}, most: []int{-1}}
	out := &Outcome{Metrics: map[string]map[string]float64{}}
	if err := s.finish(0, out); err != nil || len(out.Metrics) > 0 {
		t.Errorf("%v, %v, want no metric", out.Metrics, err)
	}
}

func TestCountSubflow(t *testing.T) {
	s := &sockets{count: map[connection]int{}}
	for _, d := range []diag{{subflow: true, state: tcpEstablished, token: 1}, {subflow: true, state: tcpEstablished, token: 1},
		{subflow: true, state: 2, token: 1}, {state: tcpEstablished, token: 1}, {subflow: true, state: tcpEstablished, token: 2}} {
		s.countSubflow(0, &d)
	}
	if s.count[connection{0, 1}] != 2 || s.count[connection{0, 2}] != 1 {
		t.Errorf("counted %v", s.count)
	}
	if got := s.fewest(0); got != 1 {
		t.Errorf("the fewest are %d, want 1", got)
	}
	s.countSubflow(0, &diag{state: tcpEstablished}) // fell back to TCP: no connection of MPTCP's any more
	if got := s.fewest(0); got != 0 {
		t.Errorf("beside a connection of TCP the fewest are %d, want 0", got)
	}
}

// TestTotal: an application has what all of its connections delivered and sent in vain, and a program the sum of their goodputs, whichever of them is there.
func TestTotal(t *testing.T) {
	for _, foreign := range []bool{true, false} {
		s := &sockets{cfg: Config{Every: time.Second, Measure: experiment.Measure{Sockets: true}, Apps: []App{{Name: "x", Foreign: foreign}}}, flows: map[uint64]*flow{}, most: []int{-1}}
		for _, at := range []struct {
			k      int
			cookie uint64
			acked  uint64
		}{{3, 1, 125000}, {4, 1, 250000}, {4, 2, 250000}, {5, 2, 500000}} {
			d := &diag{family: 10, cookie: at.cookie, bytesAcked: at.acked, spurious: uint32(at.k)}
			s.flow(0, d).record(at.k, d, time.Second)
		}
		out := &Outcome{Metrics: map[string]map[string]float64{}}
		if err := s.finish(0, out); err != nil {
			t.Fatal(err)
		}
		if got := out.Metrics["x"]; got["delivered_bytes"] != 750000 || got["spurious_retransmits"] != 9 {
			t.Errorf("metrics %v", got)
		}
		i := slices.IndexFunc(out.Series, func(s result.Series) bool { return s.Name == "x.goodput_mbps" })
		if (i >= 0) != foreign {
			t.Errorf("foreign %v: series at %d", foreign, i)
		}
		if want := []float64{1, 3, 2}; foreign && (out.Series[i].StartS != 3 || !slices.Equal(out.Series[i].Values, want)) {
			t.Errorf("%+v, want %v from 3 s", out.Series[i], want)
		}
	}
}
