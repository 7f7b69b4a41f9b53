package egress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// Flows at second 10, by what is in the table: "stalled" for 36 ms and found so just now, "long" 0.2 s ago, "gone" 1.2 s ago, "waiting" for 20 ms, "resting" as long, "patient" stalled after a second, "heard" just now with more on the way, "idle", "stuck" with something still on the way.
func flowsAt(kinds ...string) (flows []Flow) {
	now := time.Unix(10, 0)
	ago := func(ms int) time.Time { return now.Add(-time.Duration(ms) * time.Millisecond) }
	for _, k := range kinds {
		f := Flow{Exit: strings.TrimPrefix(k[:1], "-")}
		switch k[2:] {
		case "stalled":
			f.Silent, f.Heard, f.Stalled = ago(36), ago(36), now
		case "patient": // waited for longer, and found before
			f.Silent, f.Heard, f.Stalled = ago(1001), ago(1001), ago(1)
		case "resting": // nothing more is on the way
			f.Heard = ago(20)
		case "long":
			f.Silent, f.Heard, f.Stalled = ago(236), ago(236), ago(200)
		case "gone":
			f.Silent, f.Heard, f.Stalled = ago(1236), ago(1236), ago(1200)
		case "waiting":
			f.Silent, f.Heard = ago(20), ago(20)
		case "heard":
			f.Silent, f.Heard = ago(-1), ago(-1)
		case "stuck":
			f.Silent, f.Heard, f.Stuck = ago(1), ago(1), true
		case "idle":
			f.Heard = ago(500)
		case "new":
		default:
			panic(k)
		}
		flows = append(flows, f)
	}
	return flows
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		flows []string
		want  string
	}{
		{[]string{"a stalled", "b idle"}, "unsure"}, // a pause of the radio, perhaps
		{[]string{"a long", "b idle"}, "exits [a]"},
		{[]string{"a long", "b new"}, "exits [a]"},
		{[]string{"a stalled", "b heard"}, "exits [a]"},
		{[]string{"a stalled", "a stalled", "b heard"}, "exits [a]"},
		{[]string{"a stalled", "a idle", "b heard"}, "exits [a]"},
		{[]string{"- stalled", "a heard"}, "exits []"}, // that of the best path, which is not configured
		{[]string{"- stuck", "a heard"}, "stuck [0]"},
		{[]string{"a stuck", "- heard"}, "stuck [0]"},
		{[]string{"a stalled", "- idle"}, "unsure"},
		{[]string{"a stalled", "b waiting"}, "unsure"},            // the client, or the way back, may be silent
		{[]string{"a stalled", "a waiting", "b heard"}, "unsure"}, // if the other is heard, it is not the exit
		{[]string{"a stalled", "a heard", "b heard"}, ""},         // its repetitions may be lost, too
		{[]string{"a gone", "a heard", "b heard"}, "lost [0]"},    // one of parallel links, or a route that moved
		{[]string{"a gone", "a heard", "b stalled"}, "exits [b]lost [0]"},
		{[]string{"a stalled", "b stalled"}, "silent"},
		{[]string{"a long", "b long", "c idle"}, "exits [a b]"},
		{[]string{"a long", "b stalled", "c idle"}, "unsure"},
		{[]string{"a stalled", "a stalled"}, ""}, // there is no other
		{[]string{"a stalled"}, ""},
		{[]string{"a heard", "b waiting"}, ""},
		{[]string{"a stuck", "b heard"}, "stuck [0]"},
		{[]string{"a heard", "b stuck", "b heard"}, "stuck [1]"},
		{[]string{"a stuck", "a heard"}, ""}, // there is no other exit
		{[]string{"a stuck", "b idle"}, "stuck [0]"},
		{[]string{"a stuck", "b waiting"}, "stuck [0]"},
		{[]string{"a stuck", "b new"}, ""}, // which has brought nothing yet
		{[]string{"a stuck", "b long"}, "exits [b]"},
		{[]string{"a stuck", "b stuck"}, ""}, // it may be the client
		{[]string{"a stuck", "b stalled", "c heard"}, "exits [b]stuck [0]"},
	} {
		v := Judge(flowsAt(c.flows...), nil, time.Unix(10, 0))
		got := ""
		for _, one := range []struct {
			is   bool
			text string
		}{{len(v.Exits) > 0, fmt.Sprint("exits ", v.Exits)}, {len(v.Lost) > 0, fmt.Sprint("lost ", v.Lost)}, {len(v.Stuck) > 0, fmt.Sprint("stuck ", v.Stuck)}, {v.Silent, "silent"}, {v.Unsure, "unsure"}} {
			if one.is {
				got += one.text
			}
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q (%+v)", c.flows, got, c.want, v)
		}
	}
}

// Other flows of the exit show that it is well, by what was heard after the stall. By what was heard before that they show that it was alive: for as long as the stalled flow was waited for nothing is decided.
func TestJudgeByOthers(t *testing.T) {
	for _, c := range []struct {
		flows, others string
		later         int // ms after the stall
		want          bool
	}{
		{"a stalled, b heard", "a heard", 0, false},
		{"a stalled, b heard", "a idle", 0, true},
		{"a stalled, b heard", "a stalled", 0, true},
		{"a stalled, b heard", "b heard", 0, true},
		{"a stalled, b heard", "a waiting", 0, false},
		{"a stalled, b heard", "a waiting", 15, false},
		{"a stalled, b heard", "a waiting", 16, true},
		{"a stalled, b heard", "a resting", 15, false},
		{"a stalled, b heard", "a resting", 16, true},
		{"a stalled, a resting, b heard", "", 15, false},
		{"a stalled, a resting, b heard", "", 16, true},
		{"a patient, a stalled, b heard", "a waiting", 15, false},
		{"a patient, a stalled, b heard", "a waiting", 16, true}, // the one that was waited for least tells
		{"a stalled, b heard", "b waiting", 0, true},
	} {
		now := time.Unix(10, 0).Add(time.Duration(c.later) * time.Millisecond)
		flows := flowsAt(strings.Split(c.flows, ", ")...)
		flows[len(flows)-1].Heard = now
		var others []Flow
		if c.others != "" {
			others = flowsAt(c.others)
		}
		if v := Judge(flows, others, now); len(v.Exits) > 0 != c.want {
			t.Errorf("%s, with %q beside them, %d ms after the stall: %+v", c.flows, c.others, c.later, v)
		}
	}
	if v := Judge(flowsAt("a stalled", "b heard"), flowsAt("a heard", "a waiting"), time.Unix(10, 0)); v.Unsure {
		t.Errorf("nothing is open where one flow has shown that the exit is well: %+v", v)
	}
}

// health is what happens to one exit and one client, at seconds.
type healthRig struct {
	*testing.T
	*Health
	client  netip.Addr
	present bool
}

func (r healthRig) at(s float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second)))
}

func (r healthRig) tick(s float64, wantChange, wantFit bool) {
	r.Helper()
	changed := slices.Contains(r.Tick(r.at(s), func(netip.Addr) bool { return r.present }), r.client)
	if fit := r.Fit("a", r.client); changed != wantChange || fit != wantFit {
		r.Errorf("second %v: changed %v, fit %v; want %v, %v", s, changed, fit, wantChange, wantFit)
	}
}

// Flows of an exit to a client are cut once a second at the most.
func TestCut(t *testing.T) {
	r := healthRig{t, NewHealth(), netip.MustParseAddr("192.0.2.1"), true}
	for _, c := range []struct {
		s      float64
		exit   string
		client string
		want   bool
	}{{0, "a", "192.0.2.1", true}, {0.9, "a", "192.0.2.1", false}, {0.9, "b", "192.0.2.1", true}, {0.9, "a", "192.0.2.2", true}, {1, "a", "192.0.2.1", true}, {1.9, "a", "192.0.2.1", false}} {
		if got := r.Cut(c.exit, netip.MustParseAddr(c.client), r.at(c.s)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if r.tick(5, false, true); len(r.cut) > 0 {
		t.Errorf("remembered: %v", r.cut)
	}
}

// An exit that failed a client is offered again after 5 s; if the client does not come within 15 s it is taken back for twice as long, and so on; 5 min are the most.
func TestHoldDown(t *testing.T) {
	r := healthRig{t, NewHealth(), netip.MustParseAddr("192.0.2.1"), true}
	if !r.Fail("a", r.client, r.at(0)) || r.Fail("a", r.client, r.at(1)) {
		t.Error("the first failure is news, the second is none")
	}
	if !r.Fit("b", r.client) || !r.Fit("a", netip.MustParseAddr("192.0.2.2")) {
		t.Error("another exit, or another client, is held too")
	}
	r.tick(4.9, false, false)
	r.tick(5, true, true)
	r.tick(19.9, false, true)
	r.tick(20, true, false)
	r.tick(29.9, false, false)
	r.tick(30, true, true)
	r.Proven("a", r.client, r.at(31))
	r.tick(50, false, true)
	r.Fail("a", r.client, r.at(60))
	r.tick(79.9, false, false) // within a minute of its return: 20 s
	r.tick(80, true, true)
	r.Proven("a", r.client, r.at(81))
	r.tick(141, false, true)
	r.Fail("a", r.client, r.at(200))
	r.tick(204.9, false, false)
	r.tick(205, true, true)
	r.present = false // it is not taken back from a client that has gone
	r.tick(220, false, true)
	if len(r.ways) != 0 {
		t.Error("remembered of a client that has gone")
	}
	r.present = true
	r.Fail("a", r.client, r.at(205))
	for s := 206.0; len(r.ways) > 0; s++ {
		if r.Tick(r.at(s), func(netip.Addr) bool { return r.present }); s > 3600 {
			t.Fatal("an exit that nobody comes back to is never forgotten")
		}
	}
}

// A bet lasts a second; one that was wrong is the last for ten minutes.
func TestBet(t *testing.T) {
	r := healthRig{t, NewHealth(), netip.MustParseAddr("192.0.2.1"), true}
	if !r.Bet("a", r.client, r.at(0)) {
		t.Fatal("the first bet was refused")
	}
	r.tick(1, true, true)
	r.Proven("a", r.client, r.at(1.1))
	if r.Bet("a", r.client, r.at(100)) {
		t.Error("a second bet soon after one that was lost")
	}
	r.tick(602, false, true)
	if !r.Bet("a", r.client, r.at(602)) {
		t.Error("no bet ten minutes after one that was lost")
	}
	r.tick(603, true, true)
	r.tick(618, true, false) // the client did not come: the exit had failed
	r.tick(620, true, true)
	r.Proven("a", r.client, r.at(621))
	if !r.Bet("a", r.client, r.at(700)) {
		t.Error("no bet after one that was won")
	}
}

// Nor does it last longer, or count less, on an exit that has failed the client before.
func TestBetAfterFailure(t *testing.T) {
	r := healthRig{t, NewHealth(), netip.MustParseAddr("192.0.2.1"), true}
	r.Fail("a", r.client, r.at(0))
	r.tick(5, true, true)
	r.Proven("a", r.client, r.at(6))
	if !r.Bet("a", r.client, r.at(20)) {
		t.Fatal("the bet was refused")
	}
	r.tick(21, true, true)
	r.Proven("a", r.client, r.at(21.1))
	if r.Bet("a", r.client, r.at(40)) {
		t.Error("a second bet soon after one that was lost")
	}
	r.Fail("a", r.client, r.at(50))
	r.tick(59, false, false)
	r.tick(60, true, true) // twice as long as the failure before
}

// Which exits fail which prefixes is the same as when every client is looked at for each.
func TestAils(t *testing.T) {
	h, now, random := NewHealth(), time.Unix(0, 0), rand.New(rand.NewPCG(1, 1))
	address := func() netip.Addr {
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{192, 0, byte(random.IntN(3)), byte(random.IntN(4))})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 5: byte(random.IntN(3)), 15: byte(random.IntN(4))})
	}
	for range 20 {
		w := wayTo{[]string{"a", "b"}[random.IntN(2)], address()}
		h.Fail(w.exit, w.client, now)
		h.ways[w].state = ailmentState(random.IntN(3))
	}
	ails, seen := Ails(h.Patients()), map[bool]int{}
	for range 1000 {
		exit, client := []string{"a", "b", "c"}[random.IntN(3)], address()
		within := netip.PrefixFrom(client, random.IntN(client.BitLen()+1))
		some, well := false, false
		for w, a := range h.ways {
			if w.exit == exit && within.Contains(w.client) {
				some, well = true, well || a.state == recovered
			}
		}
		seen[some && !well]++
		if got, known := ails(exit, within); got != (some && !well) || known != some {
			t.Errorf("%s fails %v: %v, known %v", exit, within, got, known)
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("outcomes: %v", seen)
	}
}
