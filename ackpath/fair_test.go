package ackpath_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"plait.dev/plait/internal/rung"
)

// shared is what two transfers get of a link of 4 Mbit/s, the second one with copies of its ACKs: Mbit/s of each from 5 to 120 s, mean of the seeds.
func shared(cubic bool, rtt float64, queue int, with func(*flow)) (plain, copied float64) {
	const from, until = 5, 120
	seeds := rung.Times(2, 6)
	for seed := range uint64(seeds) {
		s := &sim{random: rand.New(rand.NewPCG(1, seed)), service: packetBits / 4e6, limit: queue}
		var flows [2]*flow
		for i := range flows {
			flows[i] = &flow{sim: s, cubic: cubic, rtt: rtt, todo: math.MaxInt32}
		}
		with(flows[1])
		for _, f := range flows {
			f.start(s.random.Float64())
		}
		s.run(until)
		for second := from; second < until; second++ {
			plain += float64(flows[0].perSecond[second])
			copied += float64(flows[1].perSecond[second])
		}
	}
	scale := packetBits / 1e6 / float64(seeds) / (until - from)
	return plain * scale, copied * scale
}

// Modes of the second flow: the way back of the ACKs takes 5 ms instead of half the round trip.
func none(*flow)     {}
func copies(f *flow) { f.lead = f.rtt/2 - 0.005 }
func fair(f *flow)   { copies(f); f.fair = true }

// With another lead.
func sooner(lead float64, with func(*flow)) func(*flow) {
	return func(f *flow) { with(f); f.lead = lead }
}

// With the fair control a competitor keeps what an equal share of a shared link is; without, it loses up to three quarters of it.
func TestCompetitorKeepsItsShare(t *testing.T) {
	cases := []struct {
		cubic     bool
		rtt, lead float64
		queue     int
	}{
		{false, 0.1, 0.045, 5}, {true, 0.35, 0.17, 30},
		{false, 0.25, 0.12, 5}, {false, 0.35, 0.17, 5}, {false, 0.35, 0.17, 150}, {true, 0.35, 0.17, 5},
		{false, 0.35, 0.035, 5}, {false, 0.25, 0.026, 5}, // leads too short for the control
		{false, 0.54, 0.49, 5}, // and one so long that an end of copies could be a timeout
	}
	if !rung.Full() {
		cases = cases[:2]
	}
	for _, c := range cases {
		a, b := shared(c.cubic, c.rtt, c.queue, none)
		share := (a + b) / 2 // both are the same without copies
		harmed, _ := shared(c.cubic, c.rtt, c.queue, sooner(c.lead, copies))
		kept, own := shared(c.cubic, c.rtt, c.queue, sooner(c.lead, fair))
		t.Logf("CUBIC %v, %.0f ms, lead %.0f ms, queue %d: %.2f Mbit/s each without copies; beside copies %.2f, beside fair ones %.2f and they %.2f",
			c.cubic, c.rtt*1000, c.lead*1000, c.queue, share, harmed, kept, own)
		if kept < 0.95*share {
			t.Errorf("the competitor gets %.2f of its share, want 0.95", kept/share)
		}
		if harmed > 0.95*share {
			t.Errorf("copies without the control leave the competitor %.2f of its share: the case proves nothing", harmed/share)
		}
	}
}

// alone is when a transfer of a number of packets is over, with nobody else on a link of 4 Mbit/s.
func alone(rtt float64, packets int, with func(*flow)) float64 {
	s := &sim{random: rand.New(rand.NewPCG(1, 3)), service: packetBits / 4e6, limit: 150}
	f := &flow{sim: s, cubic: true, rtt: rtt, todo: packets}
	with(f)
	f.start(0)
	s.run(200)
	return f.doneAt
}

// Where nobody else is, a short download keeps most of what copies give.
func TestShortDownload(t *testing.T) {
	for _, rtt := range []float64{0.1, 0.25, 0.35} {
		before, after := alone(rtt, 67, none), alone(rtt, 67, fair) // 100 kB
		t.Logf("100 kB over %.0f ms: %.2f s, with fair copies %.2f s, with copies %.2f s", rtt*1000, before, after, alone(rtt, 67, copies))
		if after > 0.81*before {
			t.Errorf("100 kB over %.0f ms take %.2f s instead of %.2f, want at least 19 %% less", rtt*1000, after, before)
		}
	}
}

// recovery is how long after losses the window is back at what fills a link of 4 Mbit/s; mean of losses at 20 times.
func recovery(cubic bool, rtt float64, with func(*flow)) (seconds float64) {
	const times = 20
	for i := range times {
		s := &sim{random: rand.New(rand.NewPCG(1, 3)), service: packetBits / 4e6, limit: 150}
		f := &flow{sim: s, cubic: cubic, rtt: rtt, todo: math.MaxInt32, drops: map[int]bool{}}
		with(f)
		f.start(0)
		full := rtt / s.service // native packets
		for f.cwnd < full || f.recovering {
			s.run(s.now + 0.01)
		}
		s.run(s.now + float64(i)*0.05)
		f.drops[len(f.packets)] = true
		for f.cwnd = math.Min(f.cwnd, full*1.05); !f.recovering; { // as if by what the link itself loses, with no more than a short queue
			s.run(s.now + 0.01)
		}
		begin := s.now
		for f.recovering || f.cwnd < full {
			s.run(s.now + 0.01)
		}
		seconds += (s.now - begin) / times
	}
	return seconds
}

// A flow that is alone is back at the full rate after a loss at least 30 % sooner.
func TestRecovery(t *testing.T) {
	for _, cubic := range []bool{false, true} {
		before, after := recovery(cubic, 0.25, none), recovery(cubic, 0.25, fair)
		t.Logf("CUBIC %v: %.1f s, with fair copies %.1f s", cubic, before, after)
		if after > 0.7*before {
			t.Errorf("CUBIC %v: full rate after %.1f s instead of %.1f, want at least 30 %% less", cubic, after, before)
		}
	}
}
