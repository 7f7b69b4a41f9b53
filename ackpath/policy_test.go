package ackpath

import (
	"strings"
	"testing"
	"time"
)

var begin = time.Unix(1_000_000, 0)

// answered is a way with this round trip.
func answered(rtt time.Duration, fair bool) *Way {
	w := &Way{}
	w.Ask(begin.Add(-rtt))
	w.Asked(begin.Add(-rtt), 1)
	w.Answered(begin, 1, fair)
	return w
}

// silent is a way that was given up.
func silent() *Way {
	w := &Way{}
	for now := begin.Add(-time.Minute); w.Ask(now); now = now.Add(HelloEvery) {
	}
	return w
}

// A way asks once a second, and rests longer and longer while nothing is.
func TestWay(t *testing.T) {
	var w Way
	now := begin
	if !w.Ask(now) || w.Ask(now.Add(HelloEvery/2)) {
		t.Error("want a hello at once, and no other half a second later")
	}
	w.Asked(now, 1)
	if w.Answered(now, 99, true) || w.Fair() {
		t.Error("an answer with a nonce that nobody sent was taken")
	}
	if !w.Answered(now.Add(100*time.Millisecond), 1, true) || w.RTT() != 100*time.Millisecond || !w.Fair() {
		t.Errorf("round trip %v, fair %v, want 100 ms and fair", w.RTT(), w.Fair())
	}
	if w.Answered(now.Add(200*time.Millisecond), 1, true) {
		t.Error("an answer that came twice was taken twice")
	}
	for i := range uint64(rttsKept) { // a queue has built up
		if w.RTT() != 100*time.Millisecond {
			t.Errorf("round trip %v after %d longer ones, want 100 ms", w.RTT(), i)
		}
		now = now.Add(HelloEvery)
		w.Ask(now)
		w.Asked(now, 10+i)
		w.Answered(now.Add(200*time.Millisecond), 10+i, true)
	}
	if w.RTT() != 200*time.Millisecond {
		t.Errorf("round trip %v, want 200 ms", w.RTT())
	}
	for _, rest := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		asked := 0
		for now = now.Add(HelloEvery); w.Ask(now); now = now.Add(HelloEvery) {
			w.Asked(now, 4)
			asked++
		}
		if asked != unansweredMost || w.Silent(now) != now.Add(rest) || w.RTT() != 0 || w.Fair() {
			t.Errorf("%d hellos, then silent until %v, round trip %v; want 3, a rest of %v and no round trip", asked, w.Silent(now), w.RTT(), rest)
		}
		if w.Answered(now, 4, true) {
			t.Error("an answer after the way was given up was taken")
		}
		now = now.Add(rest - HelloEvery)
	}
}

// A round trip of some seconds, of a bloated line, is measured.
func TestWayLongRoundTrip(t *testing.T) {
	var w Way
	for i := range uint64(20) {
		now := begin.Add(time.Duration(i) * HelloEvery)
		if i >= 2 && !w.Answered(now.Add(-time.Millisecond), i-1, true) {
			t.Fatalf("the answer to hello %d was not taken", i-1)
		}
		if !w.Ask(now) {
			t.Fatalf("no hello after %d s, though each is answered after 2", i)
		}
		w.Asked(now, i+1)
	}
	if w.RTT().Round(time.Millisecond) != 1999*time.Millisecond {
		t.Errorf("round trip %v, want 2 s", w.RTT())
	}
}

func TestDecideBegin(t *testing.T) {
	slow, quick := answered(250*time.Millisecond, true), answered(20*time.Millisecond, true)
	for _, c := range []struct {
		name        string
		slow, quick *Way
		answer      uint64
		state       State
		ask, copied bool
		because     string
	}{
		{"nobody has answered yet", &Way{}, &Way{}, 0, Unasked, false, false, "has not answered over lte yet"},
		{"nobody answers", &Way{}, silent(), 0, Unasked, false, false, "does not answer over lte: it runs no plait"},
		{"not over the quick link", slow, silent(), 0, Unasked, false, false, "does not answer over lte, and does over dsl: the link has failed"},
		{"not over the slow link", &Way{}, quick, 0, Unasked, false, false, "does not answer over dsl"},
		{"alike", answered(100*time.Millisecond, true), answered(70*time.Millisecond, true), 0, Unasked, false, false, "less than 1.5 times as long"},
		{"little to gain", answered(21*time.Millisecond, true), answered(2*time.Millisecond, true), 0, Unasked, false, false, "less than 20.0 ms to gain"},
		{"unfair", slow, answered(20*time.Millisecond, false), 1, Known, false, false, "does not correct"},
		{"not asked yet", slow, quick, 0, Unasked, true, false, "has not said yet"},
		{"known", slow, quick, 1, Known, true, true, "250.0 ms over dsl, 20.0 ms over lte"},
		{"of no use now", slow, quick, 1, Resting, true, true, "250.0 ms over dsl"},
		{"held out", slow, quick, 1, Unmanaged, true, false, "held out"},
		{"a later version's word", slow, quick, 1, 77, true, false, "says 77"},
	} {
		var s Flow
		d := s.Decide(begin, DefaultRatio, Facts{Slow: c.slow, Quick: c.quick, SlowLink: "dsl", QuickLink: "lte", Answer: c.answer, Told: Told{State: c.state}})
		if d.Ask != c.ask || d.Copy != c.copied || d.Rest != (c.state == Resting) || !strings.Contains(d.Because, c.because) {
			t.Errorf("%s: got %+v, want ask %v, copy %v, because %q", c.name, d, c.ask, c.copied, c.because)
		}
	}
}

// copying is a flow that has been copied for so many answers, each a second after the one before and each telling of 100 copies.
func copying(s *Flow, n int) (now time.Time, f Facts) {
	f = Facts{Slow: answered(250*time.Millisecond, true), Quick: answered(20*time.Millisecond, true), SlowLink: "dsl", QuickLink: "lte", Told: Told{State: Known}}
	for i := range n {
		now = begin.Add(time.Duration(i) * time.Second)
		f.Answer++
		f.Sent += 100
		f.Told.Copies += 100
		f.Told.LeadUs = 110_000
		s.Decide(now, DefaultRatio, f)
	}
	return now, f
}

// A flow that is copied rests as long as its sender has no use for copies.
func TestDecideRest(t *testing.T) {
	var s Flow
	now, f := copying(&s, 5)
	for _, c := range []struct {
		state State
		rest  bool
	}{{Resting, true}, {Resting, true}, {Known, false}} {
		now = now.Add(time.Second)
		f.Answer, f.Sent, f.Told.Copies, f.Told.State = f.Answer+1, f.Sent+20, f.Told.Copies+20, c.state
		if d := s.Decide(now, DefaultRatio, f); !d.Copy || d.Rest != c.rest || strings.Contains(d.Because, "no use for them now") != c.rest {
			t.Errorf("the sender says %d: %+v", c.state, d)
		}
	}
}

func TestDecideStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Facts, int) // before each further second
		after   int               // seconds
		because string
	}{
		{"quick path silent", func(f *Facts, _ int) { f.Quick = silent() }, 1, "does not answer over lte, and does over dsl"},
		{"unfair by now", func(f *Facts, _ int) { f.Quick = answered(20*time.Millisecond, false) }, 1, "does not correct"},
		{"quick path slower", func(f *Facts, _ int) { f.Quick = answered(300*time.Millisecond, true) }, 1, "less than 1.25 times as long by now"},
		{"given back", func(f *Facts, _ int) { f.Answer++; f.Told.State = Unmanaged }, 1, "given back"},
		{"nothing is copied", func(f *Facts, _ int) { f.Answer++; f.Receives = true }, 3, "(sysctl net.ipv4.tcp_timestamps), all ACKs go with data, or they leave by another link than the route says"},
		{"copies dropped", func(f *Facts, _ int) { f.Answer++; f.Sent += 100 }, 3, "copies do not arrive"},
		{"no lead", func(f *Facts, _ int) { f.Answer++; f.Sent += 100; f.Told.Copies += 100; f.Told.LeadUs = 4999 }, 3, "before their twins"},
		{"twins unseen", func(f *Facts, _ int) { f.Answer++; f.Sent += 100; f.Told.Copies += 100; f.Told.LeadUs = 0 }, 5, "or changes timestamps or sequence numbers on the way over dsl"},
		{"late", func(f *Facts, _ int) { f.Answer++; f.Sent += 100; f.Told.Copies += 100; f.Told.Late += 60 }, 3, "before their twins"},
		{"now and then", func(f *Facts, i int) {
			f.Answer++
			f.Sent += 100
			if i%3 == 2 {
				f.Told.Copies += 200
			}
		}, 0, ""},
		{"nothing to acknowledge", func(f *Facts, _ int) { f.Answer++ }, 0, ""},
		{"slow path so bloated that no hello comes back in time", func(f *Facts, _ int) { f.Slow, f.Handshake = silent(), 21*time.Millisecond }, 0, ""},
		{"less than the ratio, but quicker", func(f *Facts, _ int) { f.Slow = answered(25*time.Millisecond, true) }, 0, ""},
	} {
		var s Flow
		now, f := copying(&s, 3)
		stopped := 0
		var because string
		for i := range 20 {
			c.change(&f, i)
			now = now.Add(time.Second)
			if d := s.Decide(now, DefaultRatio, f); !d.Copy && stopped == 0 {
				stopped, because = i+1, d.Because
			}
		}
		if stopped != c.after || !strings.Contains(because, c.because) {
			t.Errorf("%s: stopped after %d s because %q, want %d s and %q", c.name, stopped, because, c.after, c.because)
		}
	}
}

// Each attempt in vain is followed by a longer pause; one that went well for a minute by a short one.
func TestDecideBackoff(t *testing.T) {
	var s Flow
	now, f := copying(&s, 3)
	f.Quick = answered(300*time.Millisecond, true)
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		if d := s.Decide(now, DefaultRatio, f); d.Copy || s.pause.until != now.Add(want) {
			t.Fatalf("pause until %v, want %v from now", s.pause.until.Sub(now), want)
		}
		f.Quick = answered(20*time.Millisecond, true)
		if d := s.Decide(now.Add(want-time.Second), DefaultRatio, f); d.Copy || d.Ask || !strings.Contains(d.Because, "tried again in 1s") {
			t.Fatalf("before the pause is over: %+v", d)
		}
		f.Answer++
		now = now.Add(want)
		if d := s.Decide(now, DefaultRatio, f); !d.Copy {
			t.Fatalf("after the pause: %+v, want copies", d)
		}
		f.Quick = answered(300*time.Millisecond, true)
		now = now.Add(time.Second)
	}
	now = now.Add(goodAfter)
	s.Decide(now, DefaultRatio, f)
	if want := now.Add(10 * time.Second); s.pause.until != want {
		t.Errorf("after a good minute the pause is %v, want 10 s", s.pause.until.Sub(now))
	}
}

// A sender that does not take copies is asked three times, then left alone.
func TestDecideRefused(t *testing.T) {
	var s Flow
	_, f := copying(&Flow{}, 1)
	f.Told = Told{State: Unknown}
	for i := range 3 {
		f.Answer = uint64(i + 1)
		d := s.Decide(begin, DefaultRatio, f)
		if d.Copy || d.Ask != (i < 2) {
			t.Errorf("answer %d: %+v", i+1, d)
		}
	}
}

// A sender takes a subflow with its first data. One that has none for long is not given up before that, for it begins in slow start.
func TestQuietFlowIsAskedAbout(t *testing.T) {
	var s Flow
	f := Facts{Slow: answered(100*time.Millisecond, true), Quick: answered(10*time.Millisecond, true), SlowLink: "slow", QuickLink: "quick", Told: Told{State: Unmanaged}}
	now := begin
	for range 100 * answersMost {
		now = now.Add(HelloEvery)
		f.Answer++
		if d := s.Decide(now, DefaultRatio, f); !d.Ask || d.Copy {
			t.Fatalf("after %v: %+v, want to ask again", now.Sub(begin), d)
		}
	}
	f.Receives = true
	var d Decision
	for range answersMost {
		f.Answer++
		d = s.Decide(now, DefaultRatio, f)
	}
	if d.Ask {
		t.Errorf("%d times refused with data: %+v, want a pause", answersMost, d)
	}
}

// A subflow that has just begun is asked about until the sender has it, however often it says that it has not; and its handshake tells the round trip before any
// hello has.
func TestNewFlow(t *testing.T) {
	var s Flow
	f := Facts{Slow: &Way{}, Quick: answered(10*time.Millisecond, true), Handshake: 100 * time.Millisecond, SlowLink: "slow", QuickLink: "quick", New: true, Told: Told{State: Unmanaged}}
	for range 2 * answersMost {
		f.Answer++
		if d := s.Decide(begin, DefaultRatio, f); !d.Ask || d.Copy {
			t.Fatalf("a new subflow that is refused: %+v, want to ask again", d)
		}
	}
	f.Answer++
	f.Told.State = Known
	if d := s.Decide(begin, DefaultRatio, f); !d.Copy || !strings.Contains(d.Because, "100.0 ms over slow") {
		t.Errorf("a new subflow that is known: %+v, want to copy by the handshake's round trip", d)
	}
}
