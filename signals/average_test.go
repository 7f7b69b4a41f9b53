package signals

import (
	"math"
	"testing"
)

func TestAverage(t *testing.T) {
	var a Average
	steps := []struct {
		name        string
		atUs        uint64
		intervalUs  uint32
		part, whole uint64
		ended       bool
		want        float64
	}{
		{"the first period, counted from the start of the interval", 1_200_000, 200_000, 1, 10, true, 0.1 / 8},
		{"within a period", 1_300_000, 100_000, 1, 4, false, 0.1 / 8},
		{"what both samples counted is one rate, 2 of 10", 1_400_000, 100_000, 1, 6, true, 0.1/8*7/8 + 0.2/8},
		{"late, but less than two periods", 1_799_999, 399_999, 0, 5, true, (0.1/8*7/8 + 0.2/8) * 7 / 8},
		{"an idle time of exactly 10 periods", 3_799_999, 2_000_000, 0, 0, true, (0.1/8*7/8 + 0.2/8) * math.Pow(7./8, 11)},
		{"the clock goes back", 1_000_000, 200_000, 0, 0, false, (0.1/8*7/8 + 0.2/8) * math.Pow(7./8, 11)},
	}
	for _, s := range steps {
		ended := a.Add(s.atUs, s.intervalUs, 0, s.part, s.whole)
		if ended != s.ended || math.Abs(a.Value()-s.want) > 1e-15 {
			t.Errorf("%s: ended %v, value %v, want %v, %v", s.name, ended, a.Value(), s.ended, s.want)
		}
	}
}

// An idle time in one sample is the same as one empty sample for each of its periods.
func TestAverageClosedForm(t *testing.T) {
	for periods := uint64(1); periods < 100; periods++ {
		var one, each Average
		one.Add(200_000, 200_000, 0, 1, 2)
		each.Add(200_000, 200_000, 0, 1, 2)
		for i := uint64(1); i < periods; i++ {
			each.Add(200_000+i*PeriodUs, PeriodUs, 0, 0, 0)
		}
		at := 200_000 + periods*PeriodUs
		one.Add(at, uint32(periods*PeriodUs), 0, 1, 4)
		each.Add(at, PeriodUs, 0, 1, 4)
		if math.Abs(one.Value()-each.Value()) > 1e-15 {
			t.Errorf("%d periods: %v at once, %v one by one", periods, one.Value(), each.Value())
		}
	}
}

// An interval longer than the time since boot, and the end of time, neither wrap nor leave the range.
func TestAverageExtremes(t *testing.T) {
	var a Average
	if a.Add(100, 200_000, 0, 1, 1) {
		t.Error("a period ended 100 us after boot")
	}
	if !a.Add(math.MaxUint64, 0, 0, 0, 0) || a.Value() != 1./8 {
		t.Errorf("after all of time the average is %v, want that of the last period, 1 of 1, weighed 1/8", a.Value())
	}
}

// A steady rate is reached: to 1 - (7/8)^n after n periods.
func TestAverageSteady(t *testing.T) {
	var a Average
	for n := 1; n <= 100; n++ {
		a.Add(uint64(n)*PeriodUs, PeriodUs, 0, 3, 100)
		if want := 0.03 * (1 - math.Pow(7./8, float64(n))); math.Abs(a.Value()-want) > 1e-15 {
			t.Errorf("after %d periods the average is %v, want %v", n, a.Value(), want)
		}
	}
}

// A steady rate is the same however rarely samples come while that is as often as they may: one for many periods of data is one for each.
func TestAverageOfRareSamples(t *testing.T) {
	for periods := uint64(1); periods <= 300; periods++ {
		var rare, each Average
		for n := uint64(1); n <= 1000/periods; n++ {
			rare.Add(n*periods*PeriodUs, uint32(periods*PeriodUs), uint32(periods*PeriodUs), 2*periods, 100*periods)
		}
		for n := range periods * (1000 / periods) {
			each.Add((n+1)*PeriodUs, PeriodUs, 0, 2, 100)
		}
		if math.Abs(rare.Value()-each.Value()) > 1e-12 {
			t.Errorf("a sample for %d periods: %v, one for each: %v", periods, rare.Value(), each.Value())
		}
	}
}

// Beyond the time in which no sample could be made, nothing has happened.
func TestAverageOfRareSamplesIdle(t *testing.T) {
	var rare, each Average
	rare.Add(10*PeriodUs, 10*PeriodUs, 4*PeriodUs, 8, 400)
	for n := uint64(1); n <= 10; n++ {
		lost, sent := uint64(2), uint64(100)
		if n <= 6 {
			lost, sent = 0, 0
		}
		each.Add(n*PeriodUs, PeriodUs, 0, lost, sent)
	}
	if math.Abs(rare.Value()-each.Value()) > 1e-15 {
		t.Errorf("got %v, want %v", rare.Value(), each.Value())
	}
}
