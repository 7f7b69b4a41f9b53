package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/netutil"
)

// Any user of the host may ask for metrics. What they tell is gathered under the lock that the heartbeat needs, and each connection is a file descriptor of the daemon's.
const (
	metricsEvery       = time.Second // who asks sooner is told the same again
	metricsConnections = 64          // others wait
	metricsPatience    = 10 * time.Second
)

var (
	describeUp = prometheus.NewDesc("plait_info", "1, with the version and what applies to connections no rule is for.",
		[]string{"version", "mode", "policy"}, nil)
	describeStart   = prometheus.NewDesc("plait_start_time_seconds", "When plait came up, in seconds since 1970.", nil, nil)
	describeHoldout = prometheus.NewDesc("plait_holdout_ratio", "Share of new connections left on the system's default, 0 to 1, where no rule says otherwise.", nil, nil)
	describeSockets = prometheus.NewDesc("plait_sockets", "Connections the daemon has samples of, by congestion control in use.", []string{"algorithm"}, nil)
	describeLatency = prometheus.NewDesc("plait_burst_latency_seconds",
		"Latency of bursts, from the first byte after an idle time to the last one acknowledged. The sum is estimated from the kernel half's buckets, to 12 %.", []string{"group"}, nil)
	describePrefixes = prometheus.NewDesc("plait_prefixes", "Destination prefixes by verdict on managed against held-out connections.", []string{"verdict"}, nil)
	describeReverted = prometheus.NewDesc("plait_reverted_prefixes", "Destination prefixes given back to the system's default because plait was slower.", nil, nil)
)

// counterMetric says as what a counter of the kernel half is published.
type counterMetric struct {
	counter string
	desc    *prometheus.Desc
	labels  []string
}

// counterMetrics lists the counters of a Status.
func counterMetrics() []counterMetric {
	connections := prometheus.NewDesc("plait_connections_total",
		"Connections: attached to plait, held_out on the default for comparison, refused by the kernel, fell_back to the default while they were open, for a rule, a comparison, or a daemon that stood still.", []string{"kind"}, nil)
	of := func(kind string) counterMetric { return counterMetric{kind, connections, []string{kind}} }
	single := func(counter, help string) counterMetric {
		return counterMetric{counter, prometheus.NewDesc("plait_"+counter+"_total", help, nil, nil), nil}
	}
	return []counterMetric{
		of("attached"), of("held_out"), of("refused"), of("fell_back"),
		single("switches", "Changes of congestion control on running connections."),
		single("samples_dropped", "Samples lost because the daemon did not read them in time."),
		single("choices_dropped", "Choices there was no room for, of more connections than plait can choose for; tried again."),
		single("stood_still", "Times the daemon stood still for more than 5 s, and connections that sent went to the default meanwhile."),
		single("bursts_unmeasured", "Bursts of managed connections whose end was not seen: the connection ended, or left plait."),
		single("resumed", "Connections that began with what an earlier one had learned of their path."),
	}
}

// collector publishes what a Status says of all connections together.
type collector struct {
	status   func() Status
	counters []counterMetric
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeUp, describeStart, describeHoldout, describeSockets, describeLatency, describePrefixes, describeReverted} {
		out <- d
	}
	described := map[*prometheus.Desc]bool{}
	for _, m := range c.counters {
		if !described[m.desc] {
			out <- m.desc
		}
		described[m.desc] = true
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(describeUp, 1, s.Version, string(s.Mode), s.Policy)
	gauge(describeStart, float64(s.UpSince.UnixMilli())/1000)
	gauge(describeHoldout, s.HoldoutPercent/100)
	for _, m := range c.counters {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(s.Counters[m.counter]), m.labels...)
	}
	for name, n := range s.algorithms {
		gauge(describeSockets, float64(n), name)
	}
	verdicts, reverted := map[Verdict]int{Worse: 0, Better: 0, Unclear: 0}, 0
	for _, p := range s.Prefixes {
		verdicts[p.Difference.Verdict]++
		if p.Reverted {
			reverted++
		}
	}
	out <- histogramMetric(s.bursts[0][:], "managed")
	out <- histogramMetric(s.bursts[1][:], "holdout")
	for v, n := range verdicts {
		gauge(describePrefixes, float64(n), string(v))
	}
	gauge(describeReverted, float64(reverted))
}

// Bounds of the published buckets: from 1.024 ms, each double the one before, up to 67 s. The kernel half's are four times as
// fine, which is more than a time series each is worth.
const (
	firstBound = 16 // 64 us * 2^(16/4) = 1.024 ms
	lastBound  = 80
)

// histogramMetric publishes the latencies of one group.
func histogramMetric(counts []uint64, group string) prometheus.Metric {
	sum, upTo := 0.0, uint64(0)
	buckets := map[float64]uint64{}
	for i, n := range counts {
		if i >= firstBound && i <= lastBound && i%4 == 0 {
			buckets[bucketFloorUs(i)/1e6] = upTo
		}
		upTo += n
		sum += float64(n) * latencyUs(step*float64(bucketLog(i))) / 1e6
	}
	return prometheus.MustNewConstHistogram(describeLatency, upTo, sum, buckets, group)
}

// listenMetrics opens the address Prometheus asks on; nil with "off" or nothing.
func listenMetrics(ctx context.Context, address string) (net.Listener, error) {
	if address == "" || address == metricsOff {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for Prometheus on %s: %w; name another address as metrics in the configuration, or off", address, err)
	}
	return netutil.LimitListener(l, metricsConnections), nil
}

// once gathers what Prometheus is told, however many ask, once in metricsEvery.
func once(g prometheus.Gatherer) prometheus.GathererFunc {
	var mu sync.Mutex
	var at time.Time
	var families []*dto.MetricFamily
	var err error
	return func() ([]*dto.MetricFamily, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= metricsEvery {
			families, err = g.Gather()
			at = time.Now()
		}
		return families, err
	}
}

// metricsHandler answers Prometheus. totals are those of the daemon.
func metricsHandler(totals func() Status, x *exits, a *acks) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{totals, counterMetrics()})
	if x != nil {
		registry.MustRegister(exitsCollector{x}, exitsStateCollector{x.state})
	}
	if a != nil {
		registry.MustRegister(acksCollector{a.status})
	}
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(once(registry), promhttp.HandlerOpts{}))
	return m
}
