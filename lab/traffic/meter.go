package traffic

import (
	"sync"
	"time"

	"plait.dev/plait/lab/result"
)

// meter counts the bytes that arrive at a receiver. All times are since Clock.Origin and never go backwards by more than
// what concurrent connections race for.
type meter struct {
	every, start time.Duration

	mu        sync.Mutex
	bytes     int64
	last      time.Duration // of the latest arrival
	intervals []int64       // bytes by interval, from the one that holds start
	seconds   []int64       // bytes by second since start

	due     bool          // data is due: silence counts
	quiet   time.Duration // since when nothing came
	silence time.Duration // longest so far
}

// newMeter measures from start, in intervals of every.
func newMeter(start, every time.Duration) *meter {
	return &meter{every: every, start: start, last: start}
}

// add counts n bytes that arrived at time at.
func (m *meter) add(at time.Duration, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == 0 {
		return
	}
	m.bytes += int64(n)
	m.last = max(m.last, at)
	m.intervals = count(m.intervals, int(at/m.every-m.start/m.every), n)
	m.seconds = count(m.seconds, int((at-m.start)/time.Second), n)
	if m.due {
		m.silence = max(m.silence, at-m.quiet)
	}
	m.due, m.quiet = true, at
}

func count(bytes []int64, i, n int) []int64 {
	for len(bytes) <= i {
		bytes = append(bytes, 0)
	}
	bytes[i] += int64(n)
	return bytes
}

// expect says that data is due from now on; without it, that is so from the first arrival.
func (m *meter) expect(at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.due {
		m.due, m.quiet = true, at
	}
}

// rest says that nothing is due until the next expect: the silence that follows is not the network's.
func (m *meter) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = false
}

// longestSilence is the longest time in which data was due and none came, up to end.
func (m *meter) longestSilence(end time.Duration) time.Duration {
	switch {
	case m.bytes == 0:
		return end - m.start
	case m.due:
		return max(m.silence, end-m.quiet)
	}
	return m.silence
}

// outcome is what was measured from start to end.
func (m *meter) outcome(end time.Duration) *Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	metrics := map[string]float64{
		"bytes":              float64(m.bytes),
		"goodput_mbps":       round(mbps(m.bytes, end-m.start), 6),
		"longest_silence_ms": ms(m.longestSilence(end)),
	}
	if whole := int((end - m.start) / time.Second); whole > 0 {
		least := m.bytes
		for i := range whole {
			if i < len(m.seconds) {
				least = min(least, m.seconds[i])
			} else {
				least = 0
			}
		}
		metrics["min_second_mbps"] = round(mbps(least, time.Second), 6)
	}
	return &Outcome{Metrics: metrics, Series: []result.Series{m.series(end)}}
}

// series is the goodput by interval, up to the interval in which end lies.
func (m *meter) series(end time.Duration) result.Series {
	first := m.start / m.every
	n := max(int((end+m.every-1)/m.every-first), len(m.intervals))
	values := make([]float64, n)
	for i, bytes := range m.intervals {
		values[i] = round(mbps(bytes, m.every), 6)
	}
	return result.Series{
		Name: "goodput_mbps", Unit: "Mbit/s",
		StartS: round(((first + 1) * m.every).Seconds(), 6), StepS: m.every.Seconds(), Values: values,
	}
}

// mbps is the rate of bytes in d, in Mbit/s; 0 if d is not positive.
func mbps(bytes int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) * 8 / d.Seconds() / 1e6
}
