package link

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// at puts a terminal at a fixed distance.
func radioAt(metres float64) *wimaxRadio {
	return &wimaxRadio{step: -1, movement: waypoints{fromX: metres, toX: metres, end: math.MaxInt64}}
}

// wimaxAt is a link to a terminal at a fixed distance.
func wimaxAt(metres float64, retries int, seed uint64) *WiMAX {
	l := NewWiMAX(WiMAXConfig{ARQRetries: retries, Seed: seed})
	l.chain[0] = newSlotted(&wimaxFrames{radio: radioAt(metres)}, QueueLimit{})
	l.chain[1].(*wimaxARQ).radio = radioAt(metres)
	return l
}

// distanceFor is the distance in metres at which the signal to noise ratio is that much.
func distanceFor(db float64) float64 {
	return 1000 * math.Pow(10, (snrDB(1000)-db)/pathLossSlope())
}

func TestWiMAXModulations(t *testing.T) {
	for _, c := range []struct {
		snrDB float64
		name  string
		mbps  float64
	}{
		{-5, "", 0}, {7.49, "", 0},
		{7.5, "BPSK 1/2", 2.016}, {9.49, "BPSK 1/2", 2.016},
		{9.5, "QPSK 1/2", 4.032}, {9.99, "QPSK 1/2", 4.032},
		{10, "QPSK 3/4", 6.048}, {10.99, "QPSK 3/4", 6.048},
		{11, "16QAM 1/2", 8.064}, {11.99, "16QAM 1/2", 8.064},
		{12, "16QAM 3/4", 12.096}, {19.99, "16QAM 3/4", 12.096},
		{20, "64QAM 2/3", 16.128}, {44.99, "64QAM 2/3", 16.128},
		{45, "64QAM 3/4", 18.144}, {99, "64QAM 3/4", 18.144},
	} {
		m := modulationAt(c.snrDB)
		if (m == nil) != (c.name == "") {
			t.Errorf("%v dB: %v, want %q", c.snrDB, m, c.name)
		}
		if m == nil {
			continue
		}
		if mbps := float64(m.frameBytes) * 8 / wimaxFrame.Seconds() / 1e6; m.name != c.name || math.Abs(mbps-c.mbps) > 1e-9 {
			t.Errorf("%v dB: %s at %v Mbit/s, want %s at %v", c.snrDB, m.name, mbps, c.name, c.mbps)
		}
		if ber := m.bitErrorRate(c.snrDB); ber > wimaxWorstBER*(1+1e-9) {
			t.Errorf("%v dB: bit error rate %v", c.snrDB, ber)
		}
		if ber := m.bitErrorRate(m.minSNRdB); math.Abs(ber/wimaxWorstBER-1) > 1e-9 {
			t.Errorf("%s: bit error rate %v at its least ratio, want %v", m.name, ber, wimaxWorstBER)
		}
	}
}

// TestWiMAXPathLoss compares with values worked out by hand: with log 2000 = 3.30103 and log 30 = 1.47712,
// 46.3 + 111.9049 - 20.4138 - 0.0471 + 3 = 140.7440 dB at 1 km, and 35.2249 dB per factor 10.
func TestWiMAXPathLoss(t *testing.T) {
	for km, want := range map[float64]float64{1: 140.7440, 0.1: 105.5191, 2: 151.3478} {
		if got := pathLossDB(km); math.Abs(got-want) > 2e-4 {
			t.Errorf("%v km: %.4f dB, want %.4f", km, got, want)
		}
	}
	// 43 + 15 - 1 dBm received less 140.744, noise -174 + 70 + 7 dBm.
	if got := snrDB(1000); math.Abs(got-13.256) > 2e-4 {
		t.Errorf("ratio %.4f dB at 1 km, want 13.2560", got)
	}
	if snrDB(1) != snrDB(wimaxNearestM) || snrDB(wimaxNearestM+1) >= snrDB(wimaxNearestM) {
		t.Errorf("the ratio does not stop growing at %d m", wimaxNearestM)
	}
	if got := snrDB(reachM()); math.Abs(got-7.5) > 1e-9 {
		t.Errorf("ratio %v dB at the reach, want 7.5", got)
	}
}

// TestWiMAXCapacity: a queue drains by what the modulation carries, at the ends of frames.
func TestWiMAXCapacity(t *testing.T) {
	const packets, bytes = 1000, 1500
	for _, m := range modulations {
		l := wimaxAt(distanceFor(m.minSNRdB+0.3), 16, 1)
		for range packets {
			l.Send(0, Packet{Bytes: headerBytes + bytes})
		}
		frames := (packets*bytes + m.frameBytes - 1) / m.frameBytes
		end := time.Duration(frames) * wimaxFrame
		l.advance(end - 1)
		if n, _ := l.Queued(); n == 0 {
			t.Errorf("%s: all gone before %v", m.name, end)
		}
		l.advance(end)
		if n, _ := l.Queued(); n != 0 {
			t.Errorf("%s: %d packets left at %v", m.name, n, end)
		}
	}
}

// TestWiMAXOutOfReach: nothing comes through beyond the reach, and the time to look again is not after the return.
func TestWiMAXOutOfReach(t *testing.T) {
	config := WiMAXConfig{CellRadiusM: 5000, SpeedMaxKmh: 300, Seed: 5}
	f, each := &wimaxFrames{radio: newWimaxRadio(config)}, newWimaxRadio(config)
	away := 0
	for end := wimaxFrame; end < 2*time.Hour; end += wimaxFrame {
		each.at(end)
		if each.modulation == nil {
			away++
			continue
		}
		if at, bytes := f.next(); at != end || bytes != each.frameBytes {
			t.Fatalf("frame at %v of %d bytes, want %v of %d", at, bytes, end, each.frameBytes)
		}
	}
	if away == 0 {
		t.Error("never out of reach")
	}
}

// TestWiMAXSlow: the slowest terminals, in the largest cell, are out of reach for years, which is found out in no time.
func TestWiMAXSlow(t *testing.T) {
	longest := time.Duration(0)
	for seed := range uint64(500) {
		l := NewWiMAX(WiMAXConfig{SpeedMaxKmh: 0.1, CellRadiusM: 20000, Seed: seed})
		l.Send(time.Second, Packet{Bytes: 1514})
		at, ok := l.Next()
		if !ok || at < time.Second {
			t.Fatalf("seed %d: next at %v, %v", seed, at, ok)
		}
		longest = max(longest, at)
	}
	if year := 365 * 24 * time.Hour; longest < year {
		t.Errorf("longest wait %v, want years", longest)
	}
}

// TestWiMAXARQ sends packets so far apart that none waits for another: each comes out a whole number of retries late,
// and both their numbers and the residual loss are those of independent trials.
func TestWiMAXARQ(t *testing.T) {
	const packets, retries, gap = 50000, 3, (3 + 1) * wimaxRetryDelay
	metres := distanceFor(11.4)
	l := wimaxAt(metres, retries, 7)
	ber := modulationAt(snrDB(metres)).bitErrorRate(snrDB(metres))
	failure := 1 - math.Pow(1-ber, 8*1500)
	var late [retries + 1]float64
	for i := range packets {
		sent := time.Duration(i) * gap
		l.Send(sent, Packet{Bytes: headerBytes + 1500})
		l.Receive(sent + wimaxFrame - 1)
		for {
			at, ok := l.Next()
			if !ok {
				break
			}
			if _, ok := l.Receive(at); ok {
				delay := at - sent - wimaxFrame
				if delay%wimaxRetryDelay != 0 || delay > retries*wimaxRetryDelay {
					t.Fatalf("packet %d is late by %v", i, delay)
				}
				late[delay/wimaxRetryDelay]++
			}
		}
	}
	check := func(what string, got, probability float64) {
		if sigma := math.Sqrt(packets * probability * (1 - probability)); math.Abs(got-packets*probability) > 3*sigma {
			t.Errorf("%s: %v packets, want %.0f within %.0f", what, got, packets*probability, 3*sigma)
		}
	}
	for k, n := range late {
		check(fmt.Sprintf("%d retries", k), n, math.Pow(failure, float64(k))*(1-failure))
	}
	check("lost", float64(l.Dropped()), math.Pow(failure, retries+1))
	if failure < 0.1 || failure > 0.9 {
		t.Errorf("failure probability %v tells little", failure)
	}
}

// TestWiMAXOrder: a stream of packets comes out in order, delayed ones hold back those behind, and none is missing but
// those dropped.
func TestWiMAXOrder(t *testing.T) {
	const packets = 20000
	l := NewWiMAX(WiMAXConfig{CellRadiusM: 1300, SpeedMaxKmh: 120, Seed: 2})
	received, next, held := 0, 0, 0
	last := time.Duration(-1)
	take := func(now time.Duration) {
		for {
			at, ok := l.Next()
			if !ok || at > now {
				return
			}
			p, ok := l.Receive(at)
			if !ok {
				continue
			}
			i := int(p.Data[0]) | int(p.Data[1])<<8
			if i < next || at < last {
				t.Fatalf("packet %d at %v after %d at %v", i, at, next-1, last)
			}
			if at == last {
				held++
			}
			received, next, last = received+1, i+1, at
		}
	}
	for i := range packets {
		now := time.Duration(i) * 10 * time.Millisecond
		take(now)
		l.Send(now, Packet{Bytes: 1000, Data: []byte{byte(i), byte(i >> 8)}})
	}
	take(math.MaxInt64 / 2)
	if int64(received)+l.Dropped() != packets || l.Dropped() == 0 || held == 0 {
		t.Errorf("%d received, %d held back, %d dropped of %d", received, held, l.Dropped(), packets)
	}
}

// TestWiMAXPage checks the table of the page, or with -calibrate writes it.
func TestWiMAXPage(t *testing.T) {
	if !*calibrate {
		rung.Long(t)
	}
	const file = "../../docs/lab/link/wimax.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := replaceTables(t, page, modulationTable())
	if *calibrate {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(want) != string(page) {
		t.Errorf("the table of %s is not what the model gives: run go test -run %s -calibrate", file, t.Name())
	}
}

// modulationTable measures 200 terminals of the default cell for 2 h each: the share of time in each modulation, and
// what happens to packets of 1500 bytes sent at that time.
func modulationTable() string {
	const terminals, hours, every = 200, 2, time.Second
	type tally struct{ time, failed, lost float64 }
	tallies := map[string]tally{}
	var all, rate float64
	for seed := range uint64(terminals) {
		r := newWimaxRadio(WiMAXConfig{SpeedMaxKmh: wimaxSpeedMaxKmh, CellRadiusM: wimaxCellRadiusM, Seed: seed})
		for now := time.Duration(0); now < hours*time.Hour; now += every {
			r.at(now)
			failure := 1 - math.Pow(1-r.bitErrorRate(r.snrDB), 8*1500)
			c := tallies[r.name]
			tallies[r.name] = tally{c.time + 1, c.failed + failure, c.lost + math.Pow(failure, wimaxRetries+1)}
			all++
			rate += float64(r.frameBytes) * 8 / wimaxFrame.Seconds() / 1e6
		}
	}
	var b strings.Builder
	fmt.Fprint(&b, "| modulation | from dB | up to m | Mbit/s | % of time | % of first transmissions failed | % of packets lost |\n|---|---:|---:|---:|---:|---:|---:|\n")
	var sum tally
	for _, m := range modulations {
		c := tallies[m.name]
		sum = tally{sum.time + c.time, sum.failed + c.failed, sum.lost + c.lost}
		fmt.Fprintf(&b, "| %s | %v | %.0f | %.3f | %.1f | %.1f | %.2f |\n", m.name, m.minSNRdB, min(distanceFor(m.minSNRdB), wimaxCellRadiusM),
			float64(m.frameBytes)*8/wimaxFrame.Seconds()/1e6, 100*c.time/all, 100*c.failed/c.time, 100*c.lost/c.time)
	}
	fmt.Fprintf(&b, "| all | | | %.3f | 100 | %.1f | %.2f |\n", rate/all, 100*sum.failed/all, 100*sum.lost/all)
	return b.String()
}
