package emu

import (
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
)

func mustChange(t *testing.T, l *Line, now time.Duration, d experiment.Direction, seed uint64) {
	t.Helper()
	if err := l.Change(now, d, seed); err != nil {
		t.Fatal(err)
	}
}

func TestLineChangeInPlace(t *testing.T) {
	l := build(t, fixed(12, 10, 100), 1)
	for i := range byte(3) {
		send(l, 0, i)
	}
	wantExits(t, l, ms)
	// The first is propagating, half of the second is out. The other half and the third take twice as long each.
	mustChange(t, l, ms+ms/2, fixed(6, 20, 2), 1)
	send(l, ms+ms/2, 3)
	if l.Dropped() != 1 {
		t.Errorf("%d dropped, want 1: the queue is now 2 packets", l.Dropped())
	}
	wantExits(t, l, time.Hour, exit{11 * ms, 0}, exit{2*ms + ms/2 + 20*ms, 1}, exit{4*ms + ms/2 + 20*ms, 2})
}

func TestLineChangeInPlaceNested(t *testing.T) {
	slow, fast := fixed(6, 0, 100), fixed(12, 0, 100)
	d := experiment.Direction{Then: &slow}
	l := build(t, d, 1)
	send(l, 0, 0)
	wantExits(t, l, ms)
	d.Then = &fast
	mustChange(t, l, ms, d, 1)
	wantExits(t, l, time.Hour, exit{ms + ms/2, 0})
}

func TestLineChangeOfModels(t *testing.T) {
	l := build(t, fixed(12, 10, 100), 1)
	send(l, 0, 0)
	send(l, 0, 1)
	wantExits(t, l, ms/2)
	// A recording that begins when the change happens: its first opportunity is 4 ms later.
	d := experiment.Direction{Trace: &experiment.Trace{File: "x", OpportunitiesMs: []uint32{4, 30}}}
	mustChange(t, l, ms/2, d, 1)
	send(l, ms/2, 2)
	send(l, ms/2, 3)
	if packets, bytes := l.Queued(); packets != 4 || bytes != 6000 {
		t.Errorf("%d packets, %d bytes queued, want 4 and 6000", packets, bytes)
	}
	// A change of the recording's queue alone keeps its place.
	two := 2
	d.QueuePackets = &two
	mustChange(t, l, ms, d, 1)
	send(l, ms, 4)
	wantExits(t, l, time.Hour, exit{4*ms + ms/2, 2}, exit{11 * ms, 0}, exit{12 * ms, 1}, exit{30*ms + ms/2, 3})
	if l.Dropped() != 1 || len(l.chains) != 1 {
		t.Errorf("%d dropped and %d chains, want 1 and 1", l.Dropped(), len(l.chains))
	}
}

// What replaced models have dropped still counts when they are gone.
func TestLineChangeKeepsDrops(t *testing.T) {
	l := build(t, fixed(12, 0, 1), 1)
	send(l, 0, 0)
	send(l, 0, 1)
	mustChange(t, l, 0, experiment.Direction{}, 2)
	exits(l, time.Hour)
	mustChange(t, l, time.Hour, experiment.Direction{}, 3)
	if l.Dropped() != 1 {
		t.Errorf("%d dropped, want 1", l.Dropped())
	}
}

// New models after a change go on with new randomness, and the same one every time.
func TestLineChangeRandomness(t *testing.T) {
	percent := 50.0
	pattern := func(changes int) (lost [64]bool) {
		l := build(t, experiment.Direction{LossPercent: &percent}, 1)
		for range changes {
			mustChange(t, l, 0, experiment.Direction{}, 2)
			mustChange(t, l, 0, experiment.Direction{LossPercent: &percent}, 1)
		}
		for i := range lost {
			before := l.Dropped()
			send(l, 0, 0)
			exits(l, 0)
			lost[i] = l.Dropped() > before
		}
		return lost
	}
	if first, again := pattern(1), pattern(1); first != again {
		t.Error("the same changes gave different losses")
	}
	if pattern(0) == pattern(1) {
		t.Error("models built anew repeat the losses of those before")
	}
}

func TestLineBlackhole(t *testing.T) {
	l := build(t, fixed(12, 10, 100), 1)
	send(l, 0, 0)
	l.SetBlackhole(true)
	send(l, 0, 1)
	l.SetBlackhole(false)
	send(l, 0, 2)
	wantExits(t, l, time.Hour, exit{11 * ms, 0}, exit{12 * ms, 2})
	if l.Dropped() != 1 {
		t.Errorf("%d dropped, want 1", l.Dropped())
	}
}

// TestWiMAXStaysOneTerminal: both directions go on with one terminal where an event needs new models in one of them only.
func TestWiMAXStaysOneTerminal(t *testing.T) {
	w := &wire{name: "access"}
	for i, name := range []string{"forward", "backward"} {
		var err error
		if w.directions[i].line, err = Build(0, w.name, name, experiment.Direction{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	e := &emulator{wires: []*wire{w}}
	limit := 100_000 // no packet is dropped: the queue tells what has been carried
	wimax := func(retries int) experiment.Direction {
		return experiment.Direction{WiMAX: &experiment.WiMAX{CellRadiusM: 1400, SpeedMaxKmh: 300, ARQRetries: retries}, QueuePackets: &limit}
	}
	const event = 10 * time.Second
	for _, c := range []struct {
		at                time.Duration
		forward, backward experiment.Direction
	}{
		{0, wimax(4), fixed(1, 0, 9)}, {event / 2, wimax(3), fixed(1, 0, 9)}, // one direction has been built more often
		{event / 2, wimax(3), wimax(4)}, {event, wimax(3), wimax(3)},
	} {
		if err := e.change(c.at, &change{Link: w.name, Forward: c.forward, Backward: c.backward, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	}
	var queued [2]int
	for k := range 20_000 {
		now := event + time.Duration(k)*ms
		for i := range w.directions {
			l := w.directions[i].line
			send(l, now, byte(k))
			exits(l, now)
			packets, _ := l.Queued()
			queued[i] += packets
		}
	}
	if queued[0] != queued[1] {
		t.Errorf("the queues of both directions are %v packets ms: they follow two terminals", queued)
	}
}
