package egress

import (
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/signals"
)

// opens has a new connection compared.
func (w *Worth) opens(connection uint32, heldOut bool) {
	delete(w.members.young, connection)
	delete(w.members.old, connection)
	w.Join(connection, heldOut)
}

// feed gives n new connections of each group a transfer of a megabyte, whose times spread by a fifth, and lets their samples end.
func feed(w *Worth, prefix netip.Prefix, s Strategy, n int, managedUs, heldOutUs float64, now *time.Time) (changes []Decision) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		spread := func(us float64) uint32 { return uint32(us * math.Exp(0.2*r.NormFloat64())) }
		for k, us := range []float64{managedUs, heldOutUs} {
			id := uint32(2*i + k)
			w.opens(id, k == 1)
			w.Transfer(id, prefix, s, 1<<20, spread(us), *now)
		}
	}
	*now = now.Add(sampleFor)
	return w.Tick(*now)
}

// A prefix goes to one exit where the strategy is slower, or for throughput no faster, with confidence; others' stay. After the rest it is tried again.
func TestWorth(t *testing.T) {
	prefix := netip.MustParsePrefix("2001:db8:c::/48")
	for _, c := range []struct {
		strategy Strategy
		managed  float64 // over held out
		why      string
	}{
		{Throughput, 1.3, "slower"}, {Throughput, 1, "no faster"}, {Throughput, 0.7, ""},
		{Steady, 1.3, "slower"}, {Steady, 1, ""}, {Latency, 1, ""}, {Cheap, 1.3, "slower"},
	} {
		now := time.Unix(1e9, 0)
		w := NewWorth(nil, now)
		if got := feed(w, prefix, c.strategy, 5, c.managed*1e6, 1e6, &now); len(got) != 0 {
			t.Errorf("%s: decided after 5 connections of each group: %+v", c.strategy, got)
		}
		changes := feed(w, prefix, c.strategy, 400, c.managed*1e6, 1e6, &now)
		if one := w.One(prefix, c.strategy); one != (c.why != "") || one && (len(changes) != 1 || changes[0].Why != c.why) || !one && len(changes) != 0 {
			t.Errorf("%s, managed %v times as long: one exit %v, %+v; want %q", c.strategy, c.managed, one, changes, c.why)
			continue
		}
		if c.why == "" {
			continue
		}
		if got := feed(w, prefix, c.strategy, 400, 5e6, 1e6, &now); len(got) != 0 || w.Known()[0].Managed.Samples > 405 {
			t.Errorf("%s: one exit, and still compared: %+v", c.strategy, got)
		}
		// A process after this one knows it; the next rest is twice as long.
		w = NewWorth(w.Known(), now)
		if now = now.Add(firstRest); len(w.Tick(now)) != 1 || w.One(prefix, c.strategy) {
			t.Errorf("%s: not tried again after %v", c.strategy, firstRest)
		}
		if feed(w, prefix, c.strategy, 400, c.managed*1e6, 1e6, &now); w.Known()[0].Managed.Samples != 0 {
			t.Errorf("%s: what was under way when it was tried again was compared", c.strategy)
		}
		changes = feed(w, prefix, c.strategy, 400, c.managed*1e6, 1e6, &now)
		if len(changes) != 1 || changes[0].Rest != 2*firstRest {
			t.Errorf("%s: %+v, want a rest of %v", c.strategy, changes, 2*firstRest)
		}
	}
}

// What was good for long and is bad now is found out as soon as what was bad from the beginning; what is not yet known is not forgotten.
func TestWorthChanges(t *testing.T) {
	prefix := netip.MustParsePrefix("2001:db8:c::/48")
	for _, s := range Strategies() {
		now := time.Unix(1e9, 0)
		w := NewWorth(nil, now)
		for range 50 {
			feed(w, prefix, s, 400, 0.7e6, 1e6, &now)
		}
		now = now.Add(trialFor)
		if feed(w, prefix, s, 400, 0.7e6, 1e6, &now); w.Known()[0].Managed.Samples != 0 {
			t.Errorf("%s: %v samples after a day", s, w.Known()[0].Managed.Samples)
		}
		if changes := feed(w, prefix, s, 400, 1.3e6, 1e6, &now); len(changes) != 1 {
			t.Errorf("%s is worse now, and nothing changes: %+v", s, w.Known())
		}
	}
	now := time.Unix(1e9, 0)
	w := NewWorth(nil, now)
	feed(w, prefix, Throughput, 5, 0.7e6, 1e6, &now)
	now = now.Add(trialFor)
	if feed(w, prefix, Throughput, 4, 0.7e6, 1e6, &now); w.Known()[0].Managed.Samples != 9 {
		t.Errorf("%v samples of 9 after a day without an answer", w.Known()[0].Managed.Samples)
	}
}

// A comparison that begins anew has nothing of the one before: neither what was under way then, nor how many samples its connection had had.
func TestWorthAnew(t *testing.T) {
	prefix, now := netip.MustParsePrefix("2001:db8:c::/48"), time.Unix(1e9, 0)
	const connection = 1 << 20
	w := NewWorth(nil, now)
	w.Join(connection, false)
	for range 60 {
		w.Transfer(connection, prefix, Throughput, 1<<20, 0.7e6, now)
		feed(w, prefix, Throughput, 20, 0.7e6, 1e6, &now)
	}
	now = now.Add(trialFor)
	w.Transfer(connection, prefix, Throughput, 1<<20, 0.7e6, now.Add(sampleFor/2))
	if feed(w, prefix, Throughput, 20, 0.7e6, 1e6, &now); w.Known()[0].Managed.Samples != 0 {
		t.Fatalf("it did not begin anew: %+v", w.Known())
	}
	if feed(w, prefix, Throughput, 20, 0.7e6, 1e6, &now); w.Known()[0].Managed.Samples != 20 || w.Known()[0].Managed.SamplesSquared != 20 {
		t.Errorf("20 connections with a sample each are %v samples, the squares of their numbers %v", w.Known()[0].Managed.Samples, w.Known()[0].Managed.SamplesSquared)
	}
}

// A connection is one of a prefix's also if it has had samples of another one, or of another strategy, before: routes and services change.
func TestWorthOfAnotherPrefix(t *testing.T) {
	now, narrow, wide := time.Unix(1e9, 0), netip.MustParsePrefix("2001:db8:c::/48"), netip.MustParsePrefix("2001:db8::/32")
	w := NewWorth(nil, now)
	w.Join(1, false)
	for _, of := range []knownKey{{narrow, Steady}, {narrow, Steady}, {wide, Steady}, {wide, Steady}, {wide, Latency}} {
		w.Transfer(1, of.prefix, of.strategy, 1<<20, 1e6, now)
		now = now.Add(sampleFor)
		w.Tick(now)
	}
	for of, samples := range map[knownKey]float64{{narrow, Steady}: 2, {wide, Steady}: 2, {wide, Latency}: 1} {
		if g := w.known[of].Managed; g.Connections != 1 || g.Samples != samples || g.SamplesSquared != samples*samples {
			t.Errorf("%v: %+v, want one connection with %v samples", of, g, samples)
		}
	}
}

// One that has left, and comes back, is one connection, and so is one whose last sample ends when it has left.
func TestWorthLeaves(t *testing.T) {
	now, prefix := time.Unix(1e9, 0), netip.MustParsePrefix("2001:db8:c::/48")
	w := NewWorth(nil, now)
	for range 3 {
		w.Join(1, false)
		w.Transfer(1, prefix, Steady, 1<<20, 1e6, now)
		w.Leave(1)
		w.Transfer(1, prefix, Steady, 1<<20, 9e6, now)
		now = now.Add(sampleFor)
		w.Tick(now)
	}
	if g := w.Known()[0].Managed; g.Connections != 1 || g.Samples != 3 || g.SamplesSquared != 9 || math.Abs(MbitPerSecond(g)-8<<20/1e6) > 0.001 {
		t.Errorf("%+v, %v Mbit/s, want one connection with 3 samples, and nothing of what came when it was not compared", g, MbitPerSecond(g))
	}
}

// By chance alone no prefix loses its strategy more often than the interval allows, however often it is looked at, and however few connections
// have most of the samples: each has a client and a line of its own.
func TestWorthByChance(t *testing.T) {
	for name, c := range map[string]struct{ lasting, others int }{"new": {0, 10}, "lasting": {40, 0}, "a few lasting": {2, 10}} {
		r := rand.New(rand.NewPCG(3, 4))
		worse, trials := 0, rung.Times(60, 300)
		for range trials {
			now := time.Unix(1e9, 0)
			w := NewWorth(nil, now)
			means := make([]float64, c.lasting+c.others)
			for round := range 60 {
				for i := range means {
					if round == 0 || i >= c.lasting {
						w.opens(uint32(i), i%2 == 0)
						means[i] = 0.5 * r.NormFloat64()
					}
					w.Transfer(uint32(i), netip.MustParsePrefix("192.0.2.0/24"), Steady, 1<<20, uint32(1e6*math.Exp(means[i]+0.3*r.NormFloat64())), now)
				}
				now = now.Add(sampleFor)
				if len(w.Tick(now)) > 0 {
					worse++
					break
				}
			}
		}
		if worse > trials/20 {
			t.Errorf("%s: %d of %d equal prefixes were judged", name, worse, trials)
		}
	}
}

// Nor where few are held out, who have met none yet of what is rare: a client far away that loads more than others, or a stall; nor where the clients that load most are the slowest.
func TestWorthByRareChance(t *testing.T) {
	type connection struct {
		mean float64
		left int // samples
	}
	for name, c := range map[string]struct {
		spread float64
		far    int // one in so many is slower, by
		slower float64
		more   int // and has so many samples
		stall  int // one sample in so many takes 20 times as long
		held   int // one in so many is held out
	}{"a client far away": {0.1, 200, 10, 40, math.MaxInt, 20}, "stalls": {0.05, math.MaxInt, 1, 1, 30, 20}, "slow ones load most": {0.1, 100, 3, 20, math.MaxInt, 2}} {
		r := rand.New(rand.NewPCG(3, 4))
		judged, trials := 0, rung.Times(30, 300)
		for range trials {
			now := time.Unix(1e9, 0)
			w, open := NewWorth(nil, now), map[uint32]*connection{}
			for next := range uint32(50 * 60) {
				p := &connection{c.spread * r.NormFloat64(), 1}
				w.Join(next, r.IntN(c.held) == 0)
				if open[next] = p; r.IntN(c.far) == 0 {
					p.mean, p.left = p.mean+math.Log(c.slower), c.more
				}
				if next%50 != 49 {
					continue
				}
				for _, id := range slices.Sorted(maps.Keys(open)) {
					p, x := open[id], c.spread*r.NormFloat64()
					if r.IntN(c.stall) == 0 {
						x += math.Log(20)
					}
					w.Transfer(id, netip.MustParsePrefix("192.0.2.0/24"), Steady, 1<<20, uint32(1e6*math.Exp(p.mean+x)), now)
					if p.left--; p.left == 0 {
						delete(open, id)
					}
				}
				if now = now.Add(sampleFor); len(w.Tick(now)) > 0 {
					judged++
					break
				}
			}
		}
		t.Logf("%s: %d of %d equal prefixes were judged", name, judged, trials)
		if judged > trials/20 {
			t.Errorf("%s: %d of %d equal prefixes were judged", name, judged, trials)
		}
	}
}

func TestWorthForgets(t *testing.T) {
	now := time.Unix(1e9, 0)
	slower := netip.MustParsePrefix("192.0.2.0/24")
	w := NewWorth([]Known{{Prefix: slower, Strategy: Throughput, OneUntil: now.Add(time.Hour), Rest: time.Hour}}, now)
	for i := range mostKnown + 1 {
		w.Join(uint32(i), false)
		w.Transfer(uint32(i), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Throughput, 1<<20, 1e6, now.Add(time.Duration(i)))
	}
	w.Tick(now.Add(time.Minute))
	if n := len(w.Known()); n > mostKnown || n < mostKnown/2 {
		t.Errorf("%d prefixes are known, want at most %d and most of them", n, mostKnown)
	}
	if !slices.ContainsFunc(w.Known(), func(k Known) bool { return k.Prefix == slower }) {
		t.Error("a verdict that is in force is forgotten, for nothing was sent there of late")
	}
}

// Nothing is kept of connections nobody has heard of for long.
func TestWorthForgetsMembers(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := NewWorth(nil, now)
	w.Tick(now)
	w.Join(1, false)
	for i, want := range []bool{true, true, false} {
		if is := w.Compares(1); is != want {
			t.Errorf("after %d times %v the connection is compared: %v", i, memberFor, is)
		}
		now = now.Add(memberFor)
		w.Tick(now)
	}
}

// What was written without these sums is compared anew: its samples may all be of one connection.
func TestWorthWithoutSums(t *testing.T) {
	prefix, now := netip.MustParsePrefix("2001:db8:c::/48"), time.Unix(1e9, 0)
	w := NewWorth([]Known{{Prefix: prefix, Strategy: Steady, Since: now, Managed: signals.Group{Samples: 1000, Total: 1000}, HeldOut: signals.Group{Samples: 1000}}}, now)
	if got := feed(w, prefix, Steady, 10, 1e6, 1e6, &now); len(got) != 0 || w.Known()[0].Managed.Samples != 10 {
		t.Errorf("%+v of %+v, want nothing from 10 new samples", got, w.Known())
	}
}

// What was written while the clock was ahead lasts no longer than if it had been right.
func TestWorthClock(t *testing.T) {
	prefix, now := netip.MustParsePrefix("2001:db8:c::/48"), time.Unix(1e9, 0)
	ahead := now.Add(10 * 365 * 24 * time.Hour)
	w := NewWorth([]Known{{Prefix: prefix, Strategy: Throughput, OneUntil: ahead, Rest: firstRest, Last: ahead}, {Prefix: prefix, Strategy: Steady, Since: ahead, Last: ahead}}, now)
	if now = now.Add(firstRest); len(w.Tick(now)) != 1 || w.One(prefix, Throughput) {
		t.Errorf("with one exit until %v, want until %v", w.Known()[0].OneUntil, now)
	}
	feed(w, prefix, Steady, 10, 1e6, 1e6, &now)
	known := w.Known()
	if slices.SortFunc(known, ByPrefix); known[1].Managed.Samples != 10 {
		t.Errorf("%v samples, want 10", known[1].Managed.Samples)
	}
}
