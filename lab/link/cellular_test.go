package link

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// process makes a process for a test.
func process(t testing.TB, config CellularConfig) *cellularProcess {
	t.Helper()
	p, err := newCellularProcess(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// forEachProfile runs a test on each profile.
func forEachProfile(t *testing.T, test func(t *testing.T, p *cellularProfile)) {
	for i := range cellularProfiles {
		t.Run(cellularProfiles[i].name, func(t *testing.T) { test(t, &cellularProfiles[i]) })
	}
}

func TestCellularErrors(t *testing.T) {
	for want, config := range map[string]CellularConfig{
		`no profile "edge"; there are att-lte-driving-down,`: {Profile: "edge"},
		"rate scale is -1; give one from 0.001 to 1000":      {Profile: "verizon-lte-up", RateScale: -1},
		"rate scale is NaN": {Profile: "verizon-lte-up", RateScale: math.NaN()},
	} {
		if _, err := NewCellular(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", config, err, want)
		}
	}
}

func TestCellularDeterminism(t *testing.T) {
	config := CellularConfig{Profile: "att-lte-driving-up", Seed: 1}
	a, b := process(t, config), process(t, config)
	config.Seed = 2
	other, same := process(t, config), 0
	for i := range 10000 {
		atA, bytesA := a.next()
		atB, bytesB := b.next()
		if atA != atB || bytesA != bytesB {
			t.Fatalf("opportunity %d: %v %d and %v %d with the same seed", i, atA, bytesA, atB, bytesB)
		}
		if at, bytes := other.next(); at == atA && bytes == bytesA {
			same++
		}
	}
	if same > 100 {
		t.Errorf("%d of 10000 opportunities are the same with another seed", same)
	}
}

// TestCellularLink sends packets through the link: each leaves with the opportunity that carries its last byte.
func TestCellularLink(t *testing.T) {
	config := CellularConfig{Profile: "tmobile-lte-down", Seed: 1}
	l, err := NewCellular(config)
	if err != nil {
		t.Fatal(err)
	}
	const packets = 1000
	for range packets {
		l.Send(-1, Packet{Bytes: headerBytes + opportunityBytes})
	}
	p, free, at := process(t, config), 0, time.Duration(0)
	for i := range packets {
		if free == 0 {
			var bytes int
			at, bytes = p.next()
			free = bytes / opportunityBytes
		}
		free--
		if next, ok := l.Next(); !ok || next != at {
			t.Fatalf("packet %d leaves at %v, want %v", i, next, at)
		}
		if _, ok := l.Receive(at); !ok {
			t.Fatalf("packet %d does not leave", i)
		}
	}
}

// packetsIn is the packets of the first slots of a process without outages.
func packetsIn(p *cellularProcess, slots int) []float64 {
	packets := make([]float64, slots)
	for i := range packets {
		p.nextSlot()
		for _, n := range p.packets {
			packets[i] += float64(n)
		}
	}
	return packets
}

// TestCellularScale: the rate at any scale is that of scale 1, times the scale, to one packet over all time.
func TestCellularScale(t *testing.T) {
	const slots = 20000
	sum := func(x []float64) float64 { return mean(x) * float64(len(x)) }
	config := CellularConfig{Profile: "verizon-lte-down", Seed: 3, NoOutages: true}
	one := sum(packetsIn(process(t, config), slots))
	for _, scale := range []float64{0.1, 4} {
		config.RateScale = scale
		if got := sum(packetsIn(process(t, config), slots)); math.Abs(got-scale*one) > scale+1 {
			t.Errorf("scale %v: %v packets, want %v", scale, got, scale*one)
		}
	}
}

// runs of the profile tests: standard errors come from their spread.
const profileRuns, profileRunSlots = 24, 10000

func testRuns(t *testing.T, p *cellularProfile) [][]float64 {
	t.Helper()
	var all [][]float64
	for seed := range uint64(profileRuns) {
		all = append(all, packetsIn(process(t, CellularConfig{Profile: p.name, NoOutages: true, Seed: 100 + seed}), profileRunSlots))
	}
	return all
}

// checkMean wants the mean of independent values within 3 standard errors of what it should be, and slack for the
// rounding to whole packets.
func checkMean(t *testing.T, what string, values []float64, want, slack float64) {
	t.Helper()
	bound := 3*deviation(values)/math.Sqrt(float64(len(values)-1)) + slack
	if got := mean(values); math.Abs(got-want) > bound {
		t.Errorf("%s: %.4f, want %.4f within %.4f", what, got, want, bound)
	}
}

// TestCellularRate derives mean, distribution and autocorrelation of the rate outside outages from the parameters.
func TestCellularRate(t *testing.T) {
	rung.Long(t)
	forEachProfile(t, func(t *testing.T, p *cellularProfile) {
		wantMean := expect(p.rate) / slotMbps
		wantSquare := expect(func(z float64) float64 { return p.rate(z) * p.rate(z) }) / (slotMbps * slotMbps)
		variance := wantSquare - wantMean*wantMean
		runs := testRuns(t, p)
		perRun := func(statistic func(packets []float64) float64) []float64 {
			var x []float64
			for _, packets := range runs {
				x = append(x, statistic(packets))
			}
			return x
		}
		checkMean(t, "mean packets per slot", perRun(mean), wantMean, 0)
		// A slot has less than one packet more or less than the rate says, which is what is below a quantile.
		// Further out the values are too few and too dependent for their mean to be normal.
		for z := -1.5; z <= 1.5; z += cellularLatentStep {
			limit := p.rate(z) / slotMbps
			shares := perRun(func(packets []float64) float64 { return shareBelow(packets, limit) })
			below, spread := mean(shares), 3*deviation(shares)/math.Sqrt(profileRuns-1)
			if low, high := p.probabilityBelow(limit-1), p.probabilityBelow(limit+1); below < low-spread || below > high+spread {
				t.Errorf("share of slots below %.2f packets: %.4f, want %.4f to %.4f, within %.4f", limit, below, low, high, spread)
			}
		}
		toRate := p.rateCorrelation()
		for _, lag := range acfLagsS {
			slots := int(math.Round(lag * 1000 / cellularSlotMs))
			got := perRun(func(packets []float64) float64 {
				sum := 0.0
				for i := range packets[slots:] {
					sum += (packets[i] - wantMean) * (packets[i+slots] - wantMean)
				}
				return sum / float64(len(packets)-slots) / variance
			})
			// Rounding to whole packets adds at most 1/4 of a packet squared to the covariance.
			checkMean(t, formatLag(lag), got, toRate(p.correlation(lag)), 0.25/variance)
		}
	})
}

func shareBelow(x []float64, limit float64) float64 {
	n := 0.0
	for _, v := range x {
		if v < limit {
			n++
		}
	}
	return n / float64(len(x))
}

// probabilityBelow is the probability of a rate below that many packets per slot.
func (p *cellularProfile) probabilityBelow(packets float64) float64 {
	if packets*slotMbps >= p.rate(cellularLatentMax) {
		return 1
	}
	return normal(bisect(-8, cellularLatentMax, func(z float64) bool { return p.rate(z) < packets*slotMbps }))
}

// TestCellularOutages: outages come as often and last as long as the profile says, and without them no gap is as long.
func TestCellularOutages(t *testing.T) {
	rung.Long(t)
	const run = 300 * time.Second
	forEachProfile(t, func(t *testing.T, p *cellularProfile) {
		var lengths, perMin, share []float64
		for seed := range uint64(profileRuns) {
			found := outagesOf(process(t, CellularConfig{Profile: p.name, Seed: 200 + seed}), run)
			out := 0.0
			for _, ms := range found {
				out += ms / float64(run.Milliseconds())
			}
			lengths = append(lengths, found...)
			share = append(share, out)
			perMin = append(perMin, float64(len(found))/((1-out)*run.Minutes()))
		}
		if gaps := outagesOf(process(t, CellularConfig{Profile: p.name, NoOutages: true}), 10*run); len(gaps) > 0 {
			t.Errorf("gaps of %v ms without outages", gaps)
		}
		checkMean(t, "outages per minute without", perMin, p.outagesPerMin, 0)
		meanMin := (cellularOutageMin + p.outages[0].share*p.outages[0].meanMs + p.outages[1].share*p.outages[1].meanMs) / 60e3
		checkMean(t, "share of time", share, p.outagesPerMin*meanMin/(1+p.outagesPerMin*meanMin), 0)
		for _, ms := range []float64{120.5, 150.5, 300.5, 1000.5} {
			want := 0.0
			for _, kind := range p.outages {
				want += kind.share * math.Exp(-(ms-cellularOutageMin)/kind.meanMs)
			}
			sigma := math.Sqrt(want * (1 - want) / float64(len(lengths)))
			if got := 1 - shareBelow(lengths, ms); math.Abs(got-want) > 3*sigma {
				t.Errorf("share of outages beyond %v ms: %.4f, want %.4f within %.4f", ms, got, want, 3*sigma)
			}
		}
	})
}

// outagesOf is the lengths of the outages that begin before a time, in milliseconds.
func outagesOf(p *cellularProcess, until time.Duration) []float64 {
	var lengths []float64
	last := time.Duration(0)
	for last < until {
		at, _ := p.next()
		if gap := at - last; gap >= cellularOutageMin*time.Millisecond {
			lengths = append(lengths, float64(gap.Milliseconds()))
		}
		last = at
	}
	return lengths
}

// BenchmarkCellular generates 600 s of opportunities.
func BenchmarkCellular(b *testing.B) {
	for _, name := range CellularProfiles() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p := process(b, CellularConfig{Profile: name})
				for at := time.Duration(0); at < 600*time.Second; {
					at, _ = p.next()
				}
			}
		})
	}
}

func ExampleCellularProfiles() {
	fmt.Println(strings.Join(CellularProfiles(), "\n"))
	// Output:
	// att-lte-driving-down
	// att-lte-driving-up
	// tmobile-lte-down
	// tmobile-lte-up
	// verizon-lte-down
	// verizon-lte-up
}
