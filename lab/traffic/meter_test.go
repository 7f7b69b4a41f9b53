package traffic

import (
	"slices"
	"testing"
	"time"
)

const tick = 100 * time.Millisecond

func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

func TestMeterCountsArrivalsByInterval(t *testing.T) {
	// It starts at 250 ms, inside the third interval of 100 ms. 12500 bytes are 100 kbit: 1 Mbit/s over 100 ms.
	m := newMeter(at(250), tick)
	m.add(at(260), 12500)
	m.add(at(299), 12500)
	m.add(at(300), 12500) // belongs to the interval it opens
	m.add(at(550), 25000)
	out := m.outcome(at(640))
	s := out.Series[0]
	if s.Name != "goodput_mbps" || s.Unit != "Mbit/s" || s.StartS != 0.3 || s.StepS != 0.1 {
		t.Errorf("series %s in %s from %g every %g", s.Name, s.Unit, s.StartS, s.StepS)
	}
	// 200-300, 300-400, 400-500, 500-600, and 600-700 in which it ends.
	if want := []float64{2, 1, 0, 2, 0}; !slices.Equal(s.Values, want) {
		t.Errorf("values %v, want %v", s.Values, want)
	}
	// 62500 bytes = 0.5 Mbit in 390 ms.
	if got, want := out.Metrics["goodput_mbps"], round(0.5/0.39, 6); got != want {
		t.Errorf("goodput %g, want %g", got, want)
	}
	if got := out.Metrics["bytes"]; got != 62500 {
		t.Errorf("bytes %g", got)
	}
	if _, ok := out.Metrics["min_second_mbps"]; ok {
		t.Error("min_second_mbps of less than a second")
	}
}

func TestMeterFindsTheWorstWholeSecond(t *testing.T) {
	// Seconds count from the start at 500 ms; the last, begun at 3500, is not whole at 4000 and does not count.
	m := newMeter(at(500), tick)
	m.add(at(600), 250_000)
	m.add(at(1500), 125_000)
	m.add(at(2600), 500_000)
	if got := m.outcome(at(4000)).Metrics["min_second_mbps"]; got != 1 {
		t.Errorf("min_second_mbps %g, want 1", got)
	}
	if got := m.outcome(at(4500)).Metrics["min_second_mbps"]; got != 0 {
		t.Errorf("with a silent second at the end: %g, want 0", got)
	}
}

func TestMeterSilence(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*meter)
		want float64
	}{
		{"nothing at all", func(*meter) {}, 900},
		{"between arrivals", func(m *meter) { m.add(at(300), 1); m.add(at(800), 1); m.add(at(950), 1) }, 500},
		{"to the end", func(m *meter) { m.add(at(200), 1); m.add(at(300), 1) }, 700},
		{"before the first, if due", func(m *meter) { m.expect(at(100)); m.add(at(700), 1); m.add(at(900), 1) }, 600},
		{"not while at rest", func(m *meter) {
			m.expect(at(100))
			m.add(at(150), 1)
			m.rest()
			m.expect(at(850))
			m.expect(at(880)) // due already: the silence began at 850
			m.add(at(890), 1)
			m.rest()
		}, 50},
	} {
		m := newMeter(at(100), tick)
		test.run(m)
		if got := m.outcome(at(1000)).Metrics["longest_silence_ms"]; got != test.want {
			t.Errorf("%s: %g ms, want %g", test.name, got, test.want)
		}
	}
}
