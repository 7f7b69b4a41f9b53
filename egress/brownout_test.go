package egress

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var client = netip.MustParseAddr("192.0.2.1")

// lossy is seconds of a client whose exit a sends so many segments a second and loses a share of them at random; b brings ten times as much. Data waits for it in a download. It
// returns when a was spared, and when no longer.
func lossy(r *rand.Rand, b *Brownouts, from time.Time, seconds int, perSecond, loss float64, download bool) (spared, over []int) {
	for s := range seconds {
		resent := 0.0
		for range int(perSecond) {
			if r.Float64() < loss {
				resent++
			}
		}
		loads := []WayLoad{{Exit: "a", Client: client, Bytes: perSecond, Sent: perSecond, Resent: resent, Waits: download}, {Exit: "b", Client: client, Bytes: 10 * perSecond, Sent: 10 * perSecond, Waits: download}}
		if b.Spared("a", client) != "" {
			loads = loads[1:]
		}
		on, off := b.Look(loads, from.Add(time.Duration(s)*time.Second))
		if len(on) > 0 {
			spared = append(spared, s)
		}
		if len(off) > 0 {
			over = append(over, s)
		}
	}
	return spared, over
}

// A download bears 1 % of loss for hours; 4 % not for long, and each spell is twice as long as the one before, until it is over for good.
func TestBrownout(t *testing.T) {
	r, b, at := rand.New(rand.NewPCG(5, 6)), NewBrownouts(), time.Unix(1e9, 0)
	if spared, _ := lossy(r, b, at, 7200, 250, 0.01, true); len(spared) > 0 {
		t.Errorf("spared for 1 %% of loss after %d s", spared[0])
	}
	at = at.Add(7200 * time.Second)
	spared, over := lossy(r, b, at, 120, 250, 0.04, true)
	if len(spared) < 3 || spared[0] > 5 || over[0]-spared[0] != 10 || over[1]-spared[1] != 20 || over[2]-spared[2] != 40 {
		t.Errorf("4 %% of loss: spared at %v s, until %v s", spared, over)
	}
	at = at.Add(120 * time.Second)
	lossy(r, b, at, 600, 250, 0, true)
	if len(b.ways) != 0 {
		t.Errorf("long after it is over: %v", b)
	}
}

// A stream, which other exits carry whole, is kept from one that loses 1 %; 0.2 % it bears.
func TestBrownoutOfStream(t *testing.T) {
	r, b, at := rand.New(rand.NewPCG(7, 8)), NewBrownouts(), time.Unix(1e9, 0)
	if spared, _ := lossy(r, b, at, 7200, 1000, 0.002, false); len(spared) > 0 {
		t.Errorf("spared for 0.2 %% of loss after %d s", spared[0])
	}
	at = at.Add(7200 * time.Second)
	if spared, over := lossy(r, b, at, 600, 1000, 0.01, false); len(spared) != 2 || spared[0] > 5 || over[0]-spared[0] != 300 || spared[1]-over[0] > 5 {
		t.Errorf("1 %% of loss: spared at %v s, until %v s", spared, over)
	}
}

// One that carries most of a stream is spared as well, and carries again when data goes on waiting for the others; then it is left alone for five minutes.
func TestBrownoutNeeded(t *testing.T) {
	b, at := NewBrownouts(), time.Unix(1e9, 0)
	look := func(second int, loads ...WayLoad) (spared, over []WayLoad) {
		return b.Look(loads, at.Add(time.Duration(second)*time.Second))
	}
	most, rest := WayLoad{Exit: "a", Client: client, Bytes: 2000, Sent: 2000, Resent: 40}, WayLoad{Exit: "b", Client: client, Bytes: 1000, Sent: 1000, Resent: 1}
	if spared, _ := look(0, most, rest); len(spared) > 0 {
		t.Fatal("spared at once")
	}
	if spared, _ := look(1, most, rest); len(spared) != 1 || spared[0].Exit != "a" || spared[0].Waits {
		t.Fatalf("spared: %v", spared)
	}
	rest.Waits = true
	if _, over := look(2, rest); len(over) != 0 {
		t.Fatalf("a second later: %v", over)
	}
	if _, over := look(3, rest); len(over) != 1 || !over[0].Waits || b.Spared("a", client) != "" {
		t.Fatalf("while data waits for b: %v", over)
	}
	rest.Waits = false
	for s := 4; s <= 310; s++ {
		if spared, _ := look(s, most, rest); len(spared) > 0 != (s == 303) {
			t.Fatalf("at %d s: %v", s, spared)
		}
	}
}

// That it brings little for a while does not end that.
func TestBrownoutNeededLonger(t *testing.T) {
	b, at := NewBrownouts(), time.Unix(1e9, 0)
	look := func(second int, loads ...WayLoad) (spared, over []WayLoad) {
		return b.Look(loads, at.Add(time.Duration(second)*time.Second))
	}
	most, little := WayLoad{Exit: "a", Client: client, Bytes: 2000, Sent: 2000, Resent: 40}, WayLoad{Exit: "a", Client: client, Bytes: 100, Sent: 100, Resent: 40}
	rest, waits := WayLoad{Exit: "b", Client: client, Bytes: 1000, Sent: 1000, Resent: 1}, WayLoad{Exit: "b", Client: client, Bytes: 1000, Sent: 1000, Resent: 1, Waits: true}
	look(0, most, rest)
	look(1, most, rest)
	if _, over := look(3, waits); len(over) != 1 || !over[0].Waits {
		t.Fatalf("while data waits for b: %v", over)
	}
	look(10, little, waits)
	if spared, _ := look(11, little, waits); len(spared) != 1 || !spared[0].Waits {
		t.Fatalf("while it brings little: %v", spared)
	}
	if _, over := look(21, waits); len(over) != 1 {
		t.Fatalf("ten seconds later: %v", over)
	}
	for s := 22; s <= 310; s++ {
		if spared, _ := look(s, most, rest); len(spared) > 0 != (s == 303) {
			t.Fatalf("at %d s: %v", s, spared)
		}
	}
}

// A stream that was kept from an exit is over and a download begins: the exit is needed, and soon spared again, for it loses much and brings little.
func TestBrownoutOfStreamThenDownload(t *testing.T) {
	r, b, at := rand.New(rand.NewPCG(9, 10)), NewBrownouts(), time.Unix(1e9, 0)
	if spared, over := lossy(r, b, at, 60, 250, 0.04, false); len(spared) != 1 || len(over) != 0 {
		t.Fatalf("the stream: spared at %v s, until %v s", spared, over)
	}
	spared, over := lossy(r, b, at.Add(60*time.Second), 60, 250, 0.04, true)
	if len(over) == 0 || over[0] != 0 || len(spared) == 0 || spared[0] > 5 || over[1]-spared[0] != 10 {
		t.Errorf("the download: spared at %v s, until %v s", spared, over)
	}
}

// What overran a queue, carries much of a download, or is all there is, is not spared.
func TestNoBrownout(t *testing.T) {
	at := time.Unix(1e9, 0)
	a, b := WayLoad{Exit: "a", Client: client, Bytes: 300, Sent: 300, Resent: 30}, WayLoad{Exit: "b", Client: client, Bytes: 1000, Sent: 1000}
	waiting, queued, alike, slower := b, a, b, b
	waiting.Waits, alike.Resent = true, 100
	queued.LeastRTTUs, queued.RTTUs = 20_000, 30_000
	slower.LeastRTTUs, slower.RTTUs = 50_000, 50_000
	once, late := a, a
	once.Resent, late.Resent = 200, 4
	for what, loads := range map[string][3][]WayLoad{
		"a slow start":             {{once, b}, {late, b}, {b}},
		"a great share":            {{a, waiting}, {a, waiting}, {a, waiting}},
		"a queue":                  {{queued, b}, {queued, b}, {queued, b}},
		"the quicker one":          {{a, slower}, {a, slower}, {a, slower}},
		"a bottleneck behind both": {{a, alike}, {a, alike}, {a, alike}},
		"all there is":             {{a}, {a}, {a}},
	} {
		all := NewBrownouts()
		for i, l := range loads {
			if spared, _ := all.Look(l, at.Add(time.Duration(i)*time.Second)); len(spared) > 0 {
				t.Errorf("%s: spared at %d s", what, i)
			}
		}
	}
}

// An exit that others are better off without is spared at once, until data waits for them; then they are asked to do without it no more for five minutes.
func TestBrownoutLate(t *testing.T) {
	b, at := NewBrownouts(), time.Unix(1e9, 0)
	second := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	if !b.Late("a", client, at) || b.Late("a", client, second(1)) || b.Spared("a", client) != Late || b.Spared("b", client) != "" {
		t.Fatalf("spared: %q", b.Spared("a", client))
	}
	if n := b.Clients(); n[Late]["a"] != 1 || n[Loses]["a"] != 0 {
		t.Errorf("%v", n)
	}
	rest := []WayLoad{{Exit: "b", Client: client, Bytes: 1000, Sent: 1000}}
	if _, over := b.Look(rest, second(1)); len(over) != 0 {
		t.Fatalf("nothing waits: %v", over)
	}
	rest[0].Waits = true
	if _, over := b.Look(rest, second(2)); len(over) != 1 || !over[0].Waits || b.Spared("a", client) != "" {
		t.Fatalf("data waits: %v", over)
	}
	if b.Late("a", client, second(3)) || b.Late("a", client, second(301)) || !b.Late("a", client, second(302)) {
		t.Error("it is not left alone for five minutes")
	}
}

// What all exits of a client lose is lost behind them: its own line, mostly. A slow start that overran a queue is over at the next look.
func TestLosesAnyway(t *testing.T) {
	b, client, other := NewBrownouts(), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	load := func(exit string, client netip.Addr, resent float64) WayLoad {
		return WayLoad{Exit: exit, Client: client, Bytes: 1e6, Sent: 100, Resent: resent}
	}
	both := []WayLoad{load("a", client, 10), load("b", client, 10)}
	for _, c := range []struct {
		name  string
		loads []WayLoad
		want  bool // of exit a
	}{
		{"nothing", nil, false},
		{"a alone", []WayLoad{load("a", client, 10), load("b", client, 0)}, false},
		{"both", both, false},
		{"both again", both, true},
		{"and again", both, true},
		{"the other a third as much", []WayLoad{load("a", client, 30), load("b", client, 10)}, true},
		{"the other less than that", []WayLoad{load("a", client, 31), load("b", client, 10)}, false},
		{"the other alone", []WayLoad{load("a", client, 0), load("b", client, 10)}, true},
		{"both, but one little", []WayLoad{load("a", client, 10), load("b", client, 5)}, false},
		{"both once more", both, false},
		{"the other to another client", []WayLoad{load("a", client, 10), load("b", other, 10)}, false},
		{"and again", []WayLoad{load("a", client, 10), load("b", other, 10)}, false},
	} {
		b.Look(c.loads, time.Unix(10, 0))
		if got := b.LosesAnyway("a", client, []Exit{{Name: "a"}, {Name: "b"}}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
