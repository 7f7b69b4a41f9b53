package daemon

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	prefix := func(v Verdict, reverted bool) PrefixStatus {
		return PrefixStatus{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Difference: Comparison{Verdict: v}, Reverted: reverted}
	}
	s := Status{
		Version: "1.2.3", Mode: On, Policy: "plait", HoldoutPercent: 5, UpSince: time.UnixMilli(1234500),
		Counters:   map[string]uint64{"attached": 10, "held_out": 2, "refused": 1, "fell_back": 0, "switches": 7, "samples_dropped": 4, "choices_dropped": 6, "stood_still": 1, "bursts_unmeasured": 3, "resumed": 5},
		algorithms: map[string]int{"burst": 2, "cubic": 1},
		Prefixes:   []PrefixStatus{prefix(Worse, true), prefix(Unclear, false)},
	}
	// Managed: 3 bursts of 64 to 80 us, 2 of 1.024 to 1.280 ms. Held out: 1 beyond the last bound.
	s.bursts[0][0], s.bursts[0][16], s.bursts[1][95] = 3, 2, 1
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{func() Status { return s }, counterMetrics()})
	want := `
# HELP plait_bursts_unmeasured_total Bursts of managed connections whose end was not seen: the connection ended, or left plait.
# TYPE plait_bursts_unmeasured_total counter
plait_bursts_unmeasured_total 3
# HELP plait_choices_dropped_total Choices there was no room for, of more connections than plait can choose for; tried again.
# TYPE plait_choices_dropped_total counter
plait_choices_dropped_total 6
# HELP plait_connections_total Connections: attached to plait, held_out on the default for comparison, refused by the kernel, fell_back to the default while they were open, for a rule, a comparison, or a daemon that stood still.
# TYPE plait_connections_total counter
plait_connections_total{kind="attached"} 10
plait_connections_total{kind="fell_back"} 0
plait_connections_total{kind="held_out"} 2
plait_connections_total{kind="refused"} 1
# HELP plait_holdout_ratio Share of new connections left on the system's default, 0 to 1, where no rule says otherwise.
# TYPE plait_holdout_ratio gauge
plait_holdout_ratio 0.05
# HELP plait_info 1, with the version and what applies to connections no rule is for.
# TYPE plait_info gauge
plait_info{mode="on",policy="plait",version="1.2.3"} 1
# HELP plait_prefixes Destination prefixes by verdict on managed against held-out connections.
# TYPE plait_prefixes gauge
plait_prefixes{verdict="better"} 0
plait_prefixes{verdict="unclear"} 1
plait_prefixes{verdict="worse"} 1
# HELP plait_resumed_total Connections that began with what an earlier one had learned of their path.
# TYPE plait_resumed_total counter
plait_resumed_total 5
# HELP plait_reverted_prefixes Destination prefixes given back to the system's default because plait was slower.
# TYPE plait_reverted_prefixes gauge
plait_reverted_prefixes 1
# HELP plait_samples_dropped_total Samples lost because the daemon did not read them in time.
# TYPE plait_samples_dropped_total counter
plait_samples_dropped_total 4
# HELP plait_sockets Connections the daemon has samples of, by congestion control in use.
# TYPE plait_sockets gauge
plait_sockets{algorithm="burst"} 2
plait_sockets{algorithm="cubic"} 1
# HELP plait_start_time_seconds When plait came up, in seconds since 1970.
# TYPE plait_start_time_seconds gauge
plait_start_time_seconds 1234.5
# HELP plait_switches_total Changes of congestion control on running connections.
# TYPE plait_switches_total counter
plait_switches_total 7
`
	names := []string{"plait_bursts_unmeasured_total", "plait_choices_dropped_total", "plait_connections_total", "plait_holdout_ratio", "plait_info", "plait_prefixes",
		"plait_resumed_total", "plait_reverted_prefixes", "plait_samples_dropped_total", "plait_sockets", "plait_start_time_seconds", "plait_switches_total"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "plait_burst_latency_seconds" {
			continue
		}
		holdout, managed := f.GetMetric()[0].GetHistogram(), f.GetMetric()[1].GetHistogram()
		if n := len(managed.GetBucket()); n != 17 || managed.GetSampleCount() != 5 || holdout.GetSampleCount() != 1 {
			t.Errorf("%d buckets, %d managed, %d held out, want 17, 5, 1", n, managed.GetSampleCount(), holdout.GetSampleCount())
		}
		first, second, last := managed.GetBucket()[0], managed.GetBucket()[1], holdout.GetBucket()[16]
		near(t, "first bound", first.GetUpperBound(), 0.001024)
		near(t, "last bound", last.GetUpperBound(), 67.108864)
		if first.GetCumulativeCount() != 3 || second.GetCumulativeCount() != 5 || last.GetCumulativeCount() != 0 {
			t.Errorf("up to 1.024 ms %d, up to 2.048 ms %d, want 3 and 5; held out up to 67 s %d, want 0", first.GetCumulativeCount(), second.GetCumulativeCount(), last.GetCumulativeCount())
		}
		near(t, "sum", managed.GetSampleSum(), (3*64+2*1024)*math.Exp2(5./32)/1e6)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Counters must not fall, or Prometheus takes all they have for new: neither when a destination is forgotten nor when the comparison begins anew.
func TestBurstsStayCounted(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	counted := func() (n uint64) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(&collector{d.totals, counterMetrics()})
		families, err := registry.Gather()
		h.must(err)
		for _, f := range families {
			if f.GetName() == "plait_burst_latency_seconds" {
				n = f.GetMetric()[1].GetHistogram().GetSampleCount() // of managed connections
			}
		}
		return n
	}
	h.must(transfer(h.connect(0, ""), 1000))
	h.eventually(20*time.Second, "the burst is counted", func() bool { return counted() == 1 })
	h.must(d.kernel.clearLatencies())
	if n, known := counted(), len(d.Status().Prefixes); n != 1 || known != 0 {
		t.Errorf("%d destinations are known and %d bursts counted, want 0 and 1", known, n)
	}
}

func TestServeMetrics(t *testing.T) {
	if _, err := listenMetrics(t.Context(), "off"); err != nil {
		t.Errorf("off: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	want := "; name another address as metrics in the configuration, or off"
	if _, err := listenMetrics(t.Context(), address); err == nil || !strings.HasPrefix(err.Error(), "listen for Prometheus on "+address+": ") || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("taken address: got %v, want ...%s", err, want)
	}
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	l, err = listenMetrics(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- serve(ctx, l, metricsHandler(func() Status { return Status{} }, nil, nil), metricsPatience)
	}()
	var response *http.Response
	for range 1000 {
		if response, err = http.Get("http://" + address + "/metrics"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(text), "plait_connections_total{kind=\"attached\"} 0\n") {
		t.Errorf("%v: got\n%s", err, text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
