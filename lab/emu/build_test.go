package emu

import (
	"slices"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/link"
)

const ms = time.Millisecond

// exit is a packet that came out: when, and its number.
type exit struct {
	at     time.Duration
	number byte
}

func send(l *Line, now time.Duration, number byte) {
	l.Send(now, link.Packet{Bytes: 1500, Data: []byte{number}})
}

// exits receives all that comes out until the given time, each packet at its time.
func exits(l *Line, until time.Duration) []exit {
	var got []exit
	for {
		at, ok := l.Next()
		if !ok || at > until {
			return got
		}
		if p, ok := l.Receive(at); ok {
			got = append(got, exit{at, p.Data[0]})
		}
	}
}

func wantExits(t *testing.T, l *Line, until time.Duration, want ...exit) {
	t.Helper()
	if got := exits(l, until); !slices.Equal(got, want) {
		t.Errorf("packets came out at\n%v, want\n%v", got, want)
	}
}

func build(t *testing.T, d experiment.Direction, seed uint64) *Line {
	t.Helper()
	l, err := Build(0, "access", "forward", d, seed)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// 12 Mbit/s: 1500 bytes take 1 ms.
func fixed(rateMbps, delayMs float64, packets int) experiment.Direction {
	return experiment.Direction{RateMbps: &rateMbps, DelayMs: &delayMs, QueuePackets: &packets}
}

func TestBuildNothing(t *testing.T) {
	l := build(t, experiment.Direction{}, 1)
	send(l, 5*ms, 0)
	wantExits(t, l, time.Hour, exit{5 * ms, 0})
}

func TestBuildOrder(t *testing.T) {
	behind := fixed(6, 5, 1)
	d := fixed(12, 10, 2)
	d.Then = &behind
	l := build(t, d, 1)
	for i := range byte(3) {
		send(l, 0, i)
	}
	// The third finds the queue full. The first two leave it at 1 and 2 ms and reach the second link 10 ms later, where
	// the second packet finds the first in transmission until 13 ms and room for one.
	wantExits(t, l, time.Hour, exit{18 * ms, 0})
	if l.Dropped() != 2 {
		t.Errorf("%d dropped, want 2", l.Dropped())
	}
}

func TestBuildDefaultQueue(t *testing.T) {
	rate := 1.0
	l := build(t, experiment.Direction{RateMbps: &rate}, 1)
	for range 1001 {
		send(l, 0, 0)
	}
	if packets, _ := l.Queued(); packets != 1000 || l.Dropped() != 1 {
		t.Errorf("%d queued, %d dropped, want 1000 and 1", packets, l.Dropped())
	}
	bytes := 10_000_000
	l = build(t, experiment.Direction{RateMbps: &rate, QueueBytes: &bytes}, 1)
	for range 1001 {
		send(l, 0, 0)
	}
	if packets, _ := l.Queued(); packets != 1001 {
		t.Errorf("%d queued, want 1001: a limit in bytes replaces that in packets", packets)
	}
}

func TestBuildTraceSeedStep(t *testing.T) {
	d := experiment.Direction{Trace: &experiment.Trace{OpportunitiesMs: []uint32{10, 100}, StartS: 0.002, SeedStepS: 0.003}}
	for seed, want := range map[uint64]time.Duration{1: 8 * ms, 2: 5 * ms, 3: 2 * ms, 4: 89 * ms} {
		l := build(t, d, seed)
		send(l, 0, 0)
		wantExits(t, l, time.Hour, exit{want, 0})
	}
}

func TestBuildUnusable(t *testing.T) {
	for _, d := range []experiment.Direction{
		{Trace: &experiment.Trace{File: "x.up"}},
		{Cellular: &experiment.Cellular{Profile: "carrier pigeon"}},
		{Then: &experiment.Direction{Trace: &experiment.Trace{File: "x.up"}}},
	} {
		if _, err := Build(0, "access", "forward", d, 1); err == nil {
			t.Errorf("direction %+v was built", d)
		}
	}
}

// outcome is what happens to packets sent at regular times: when each comes out, 0 if it is lost.
func outcome(t *testing.T, link, direction string, d experiment.Direction, seed uint64, gap time.Duration) (at [200]time.Duration) {
	t.Helper()
	l, err := Build(0, link, direction, d, seed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range at {
		send(l, time.Duration(i)*gap, byte(i))
	}
	for _, e := range exits(l, time.Hour) {
		at[e.number] = e.at
	}
	return at
}

func TestBuildRandomness(t *testing.T) {
	percent := 30.0
	plain := experiment.Direction{LossPercent: &percent}
	losses := func(link, direction string, d experiment.Direction, seed uint64) (lost [200]bool) {
		for i, at := range outcome(t, link, direction, d, seed, 5*ms) {
			lost[i] = at == 0
		}
		return lost
	}
	pattern := losses("access", "forward", plain, 1)
	more := plain
	two := 2.0
	more.Jitter = &experiment.Jitter{MeanMs: 1, MaxMs: &two}
	more.Reorder = &experiment.Reorder{Percent: 10, ExtraMs: 1}
	if pattern != losses("access", "forward", more, 1) {
		t.Error("further models changed which packets are lost")
	}
	for _, other := range []struct {
		link, direction string
		seed            uint64
	}{{"access", "backward", 1}, {"core", "forward", 1}, {"access", "forward", 2}} {
		if pattern == losses(other.link, other.direction, plain, other.seed) {
			t.Errorf("%s %s with seed %d loses the same packets", other.link, other.direction, other.seed)
		}
	}
}

// TestBuildJitterCap: a cap of 0 is one, not the default.
func TestBuildJitterCap(t *testing.T) {
	var d experiment.Direction
	latest := func(maxMs *float64) (at time.Duration) {
		d.Jitter = &experiment.Jitter{MeanMs: 5, MaxMs: maxMs}
		l := build(t, d, 1)
		for i := range 1000 {
			send(l, 0, byte(i))
		}
		for _, e := range exits(l, time.Minute) {
			at = max(at, e.at)
		}
		return at
	}
	none, two := 0.0, 2.0
	if a, b, c := latest(&none), latest(&two), latest(nil); a != 0 || b != 2*ms || c <= 2*ms || c > 50*ms {
		t.Errorf("the latest of 1000 packets comes out at %v, %v, %v, want 0, 2 ms and up to 50 ms", a, b, c)
	}
}

// TestBuildWiMAXDirections: they follow one terminal, whose distance gives the capacity, but what has bit errors in one has none in the other.
func TestBuildWiMAXDirections(t *testing.T) {
	limit := 100_000 // no packet is dropped: the queue tells what has been carried
	wimax := experiment.Direction{WiMAX: &experiment.WiMAX{CellRadiusM: 1400, SpeedMaxKmh: 300}, QueuePackets: &limit}
	var lines [3]*Line
	for i, name := range [][2]string{{"access", "forward"}, {"access", "backward"}, {"core", "forward"}} {
		var err error
		if lines[i], err = Build(0, name[0], name[1], wimax, 1); err != nil {
			t.Fatal(err)
		}
	}
	var queued [3]int // their sums over time, which the capacity alone decides
	var out [3][]exit
	for k := range 60_000 {
		now := time.Duration(k) * ms
		for i, l := range lines {
			send(l, now, byte(k))
			out[i] = append(out[i], exits(l, now)...)
			packets, _ := l.Queued()
			queued[i] += packets
		}
	}
	if queued[0] != queued[1] || queued[0] == queued[2] {
		t.Errorf("the queues of both directions and of another link are %v packets ms", queued)
	}
	if slices.Equal(out[0], out[1]) {
		t.Error("both directions have the same bit errors")
	}
}

func TestBuildEveryModel(t *testing.T) {
	d := experiment.Direction{
		GilbertElliott: &experiment.GilbertElliott{PPercent: 1, RPercent: 10, LossBadPercent: 50, MACAttempts: 2},
		Jitter:         &experiment.Jitter{MeanMs: 1},
		Reorder:        &experiment.Reorder{Percent: 1, ExtraMs: 5},
		Cellular:       &experiment.Cellular{Profile: "verizon-lte-down"},
		Then:           &experiment.Direction{WiMAX: &experiment.WiMAX{}},
	}
	l := build(t, d, 1)
	for i := range 1000 {
		now := time.Duration(i) * 10 * ms
		send(l, now, 0)
		for _, ok := l.Receive(now); ok; _, ok = l.Receive(now) {
		}
	}
	out := len(exits(l, time.Hour))
	if queued, _ := l.Queued(); queued != 0 || out == 0 || l.Dropped() == 0 {
		t.Errorf("%d came out at the end, %d dropped, %d still queued; want some, some and none", out, l.Dropped(), queued)
	}
}
