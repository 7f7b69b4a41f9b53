package daemon

import "github.com/prometheus/client_golang/prometheus"

var (
	describeExitBytes = prometheus.NewDesc("plait_exit_acked_bytes_total", "Bytes clients have acknowledged, by the exit they left through.", []string{"exit"}, nil)
	describeExitSent  = prometheus.NewDesc("plait_exit_segments_total", "TCP segments sent through an exit: new or resent.", []string{"exit", "kind"}, nil)
	describeExitRTT   = prometheus.NewDesc("plait_exit_rtt_seconds", "Round-trip time of the last seconds, mean over the bytes acknowledged. Absent without traffic.", []string{"exit"}, nil)
	describeExitHeld  = prometheus.NewDesc("plait_exit_failed_clients", "Clients an exit is not offered to now because their packets did not arrive.", []string{"exit"}, nil)

	describeNetworkGoodput = describeNetwork("goodput_bps", "Bits a second that clients have acknowledged, of the last half minute; of the 20 busiest networks and exits alone.")
	describeNetworkRTT     = describeNetwork("rtt_seconds", "Round-trip time, as plait_exit_rtt_seconds; of the 20 busiest networks and exits alone.")
	describeNetworkResent  = describeNetwork("resent_ratio", "Share of the segments sent that were sent again, 0 to 1, of the last half minute; of the 20 busiest networks and exits alone.")
)

func describeNetwork(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("plait_network_"+name, help, []string{"prefix", "exit"}, nil)
}

// publishedNetworks is how many networks there are metrics of: a full table has a million, and each would be a time series of its own for ever.
const publishedNetworks = 20

// exitsCollector publishes what was measured of the exits.
type exitsCollector struct{ *exits }

// Describe implements prometheus.Collector.
func (c exitsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeExitBytes, describeExitSent, describeExitRTT, describeExitHeld, describeNetworkGoodput, describeNetworkRTT, describeNetworkResent} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c exitsCollector) Collect(out chan<- prometheus.Metric) {
	traffic, networks := c.traffic.Exits(), c.networks.Busiest(publishedNetworks)
	c.mu.Lock()
	failed := c.health.Held()
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
	for _, n := range networks {
		if !n.Prefix.IsValid() {
			continue
		}
		gauge := func(desc *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, n.Prefix.String(), n.Exit)
		}
		gauge(describeNetworkGoodput, n.GoodputBps)
		gauge(describeNetworkResent, n.LossPercent/100)
		if n.RTTMs > 0 {
			gauge(describeNetworkRTT, n.RTTMs/1000)
		}
	}
}
