package measure

import (
	"slices"
	"testing"
	"time"
)

func newTestProbe() *probe {
	return &probe{cfg: Config{Every: 100 * time.Millisecond, Apps: []App{{Name: "x"}}}, acks: map[uint64]probeEvent{},
		states: map[uint64]uint8{}, counts: make([][len(probeSeries)][]float64, 1)}
}

func TestDuplicateACKs(t *testing.T) {
	p := newTestProbe()
	const ms = time.Millisecond
	for _, e := range []probeEvent{
		{at: 10 * ms, socket: 1, sndUna: 100, sndNxt: 400},              // duplicate: snd_una is still 100 at the next
		{at: 20 * ms, socket: 1, sndUna: 100, sndNxt: 400},              // moves snd_una
		{at: 30 * ms, socket: 2, sndUna: 100, sndNxt: 400},              // another socket, and its last
		{at: 40 * ms, socket: 1, sndUna: 200, sndNxt: 400, dataLen: 50}, // data, so no duplicate
		{at: 100 * ms, socket: 1, sndUna: 200, sndNxt: 400},             // duplicate, in the first interval still
		{at: 101 * ms, socket: 1, sndUna: 200, sndNxt: 400},             // duplicate, in the second
		{at: 350 * ms, socket: 1, sndUna: 200, sndNxt: 400},             // moves snd_una
		{at: 360 * ms, socket: 1, sndUna: 400, sndNxt: 400},             // nothing outstanding
		{at: 370 * ms, socket: 1, sndUna: 400, sndNxt: 400},             // the last: not known
	} {
		e.kind = eventProbe
		p.count(&e)
	}
	if got := p.counts[0][countDupACK]; !slices.Equal(got, []float64{2, 1}) {
		t.Errorf("duplicate ACKs per interval: %v, want 2, 1", got)
	}
}

func TestRetransmitKinds(t *testing.T) {
	p := newTestProbe()
	for _, e := range []probeEvent{
		{kind: eventRetransmit, socket: 1, segments: 1}, // Open: a tail loss probe
		{kind: eventState, socket: 1, state: caRecovery},
		{kind: eventRetransmit, socket: 1, segments: 1},
		{kind: eventRetransmit, socket: 1, segments: 5}, // a buffer of five
		{kind: eventRetransmit, socket: 2, segments: 1}, // not the socket in recovery
		{kind: eventState, socket: 1, state: caLoss},
		{kind: eventRetransmit, socket: 1, segments: 1},
		{kind: eventState, socket: 1, state: 0},
		{kind: eventRetransmit, socket: 1, segments: 1},
	} {
		p.count(&e)
	}
	for what, want := range map[int]float64{countFast: 6, countTimeout: 1, countProbe: 3} {
		if got := sum(p.counts[0][what]); got != want {
			t.Errorf("%s = %v, want %v", probeSeries[what], got, want)
		}
	}
}

// TestProbeToTheEnd: what happens in the last interval, which is not over at the end, is in the series, too.
func TestProbeToTheEnd(t *testing.T) {
	for end, want := range map[time.Duration][]float64{250: {0, 1, 2}, 200: {0, 1, 2}, 420: {0, 1, 2, 0, 0}, 300: {0, 1, 2}} {
		p := newTestProbe()
		p.instance = t.TempDir()
		for _, at := range []time.Duration{150, 210, 240} {
			p.count(&probeEvent{at: at * time.Millisecond, kind: eventRetransmit, segments: 1})
		}
		out := &Outcome{Metrics: map[string]map[string]float64{}}
		if err := p.finish(end*time.Millisecond, out); err != nil {
			t.Fatal(err)
		}
		if got := find(t, out, "x.probe_retransmits").Values; !slices.Equal(got, want) || sum(got) != out.Metrics["x"]["probe_retransmits"] {
			t.Errorf("end at %d ms: %v, want %v, the sum of which is the metric %v", end, got, want, out.Metrics["x"]["probe_retransmits"])
		}
	}
}
