package daemon

import "github.com/prometheus/client_golang/prometheus"

var (
	describeExitBytes = prometheus.NewDesc("plait_exit_acked_bytes_total", "Bytes clients have acknowledged, by the exit they left through.", []string{"exit"}, nil)
	describeExitSent  = prometheus.NewDesc("plait_exit_segments_total", "TCP segments sent through an exit: new or resent.", []string{"exit", "kind"}, nil)
	describeExitRTT   = prometheus.NewDesc("plait_exit_rtt_seconds", "Round-trip time of the last seconds, mean over the bytes acknowledged. Absent without traffic.", []string{"exit"}, nil)
	describeExitHeld  = prometheus.NewDesc("plait_exit_failed_clients", "Clients an exit is not offered to now because their packets did not arrive.", []string{"exit"}, nil)
)

// exitsCollector publishes what was measured of the exits.
type exitsCollector struct{ *exits }

// Describe implements prometheus.Collector.
func (c exitsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeExitBytes, describeExitSent, describeExitRTT, describeExitHeld} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c exitsCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	traffic, failed := c.traffic.Exits(), map[string]int{}
	for _, exits := range c.health.Held() {
		for _, name := range exits {
			failed[name]++
		}
	}
	c.mu.Unlock()
	for _, e := range c.config.Exits {
		t := traffic[e.Name]
		for _, m := range []struct {
			desc   *prometheus.Desc
			kind   prometheus.ValueType
			value  float64
			labels []string
		}{
			{describeExitBytes, prometheus.CounterValue, float64(t.AckedBytes), nil},
			{describeExitSent, prometheus.CounterValue, float64(t.SentSegments - t.Resent), []string{"new"}},
			{describeExitSent, prometheus.CounterValue, float64(t.Resent), []string{"resent"}},
			{describeExitHeld, prometheus.GaugeValue, float64(failed[e.Name]), nil},
		} {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value, append([]string{e.Name}, m.labels...)...)
		}
		if t.RTTMs > 0 {
			out <- prometheus.MustNewConstMetric(describeExitRTT, prometheus.GaugeValue, t.RTTMs/1000, e.Name)
		}
	}
}
