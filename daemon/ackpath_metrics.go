package daemon

import "github.com/prometheus/client_golang/prometheus"

var (
	describeAckFlows = prometheus.NewDesc("plait_ackpath_flows",
		"MPTCP subflows: copied, whose ACKs this host copies over a quicker link; native, of connections with several links, whose it does not; taken, that this host takes copies for.", []string{"state"}, nil)
	describeAckCopies = prometheus.NewDesc("plait_ackpath_copies_total",
		"Copies of ACKs: sent; taken, as a sender; late, those of the taken that were there after their twin. A reload that turns the lever off begins anew.", []string{"kind"}, nil)
	describeAckIgnored = prometheus.NewDesc("plait_ackpath_ignored_total", "Datagrams on the port of hellos that were none, or too many of one source.", nil, nil)
)

// acksCollector publishes what the lever ackpath does.
type acksCollector struct{ status func() AckpathStatus }

// Describe implements prometheus.Collector.
func (c acksCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeAckFlows, describeAckCopies, describeAckIgnored} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c acksCollector) Collect(out chan<- prometheus.Metric) {
	s, copied := c.status(), 0
	for _, f := range s.Flows {
		if !f.Copied.IsZero() {
			copied++
		}
	}
	for _, m := range []struct {
		desc   *prometheus.Desc
		kind   prometheus.ValueType
		value  float64
		labels []string
	}{
		{describeAckFlows, prometheus.GaugeValue, float64(copied), []string{"copied"}},
		{describeAckFlows, prometheus.GaugeValue, float64(len(s.Flows) - copied), []string{"native"}},
		{describeAckFlows, prometheus.GaugeValue, float64(len(s.Taken)), []string{"taken"}},
		{describeAckCopies, prometheus.CounterValue, float64(s.Copies), []string{"sent"}},
		{describeAckCopies, prometheus.CounterValue, float64(s.TakenCopies), []string{"taken"}},
		{describeAckCopies, prometheus.CounterValue, float64(s.LateCopies), []string{"late"}},
		{describeAckIgnored, prometheus.CounterValue, float64(s.Ignored), nil},
	} {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value, m.labels...)
	}
}
