package measure

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"

	"golang.org/x/sys/unix"
)

func TestParseStats(t *testing.T) {
	stats := make([]byte, 24*8)
	for i := range 24 {
		binary.NativeEndian.PutUint64(stats[8*i:], uint64(100+i)) // rx_packets, tx_packets, rx_bytes, tx_bytes, ...
	}
	var k kernelCounter
	if err := k.parseStats(append(make([]byte, 12), attr(unix.IFLA_STATS_LINK_64, stats)...)); err != nil {
		t.Fatal(err)
	}
	if k.totals != (Totals{Packets: 101, Bytes: 103}) {
		t.Errorf("%+v", k.totals)
	}
	if k.parseStats(make([]byte, 4)) == nil {
		t.Error("an answer without counters was accepted")
	}
}

func TestParseQdisc(t *testing.T) {
	queue := slices.Concat(u32(17), u32(25000), u32(4), u32(0), u32(0)) // qlen, backlog, drops, requeues, overlimits
	var k kernelCounter
	if err := k.parseQdisc(append(make([]byte, sizeofTCMsg), attr(unix.TCA_STATS2|unix.NLA_F_NESTED, attr(tcaStatsQueue, queue))...)); err != nil {
		t.Fatal(err)
	}
	if k.totals != (Totals{Drops: 4}) || k.length != 17 {
		t.Errorf("%+v", k.totals)
	}
	if k.parseQdisc(make([]byte, sizeofTCMsg)) == nil {
		t.Error("an answer without statistics was accepted")
	}
}

// An emulated link that delivers 125000 bytes in every interval, 1000 of them before the measurement.
func TestLinks(t *testing.T) {
	totals := Totals{Bytes: 1000, Packets: 1, Drops: 5}
	cfg := Config{Every: 100 * time.Millisecond, Measure: experiment.Measure{Links: true},
		Links: []Link{{"x", "forward", Counter{Emulated: func() Totals { return totals }}}, {"x", "backward", Counter{Emulated: func() Totals { return Totals{} }}}}}
	l, err := openLinks(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for k, queue := range []int{0, 3, 8, 2} {
		totals.Bytes, totals.Packets, totals.QueuePackets = totals.Bytes+125000, totals.Packets+100, queue
		if err := l.sample(k, cfg.Every); err != nil {
			t.Fatal(err)
		}
	}
	totals.Drops += 2
	out := &Outcome{Metrics: map[string]map[string]float64{}}
	if err := l.finish(0, out); err != nil {
		t.Fatal(err)
	}
	m := out.Metrics["x"]
	if m["forward_bytes"] != 500000 || m["forward_packets"] != 400 || m["forward_drops"] != 2 || m["forward_queue_max_packets"] != 8 || m["backward_bytes"] != 0 {
		t.Errorf("metrics %v", m)
	}
	if got := find(t, out, "x.forward_mbps").Values; !slices.Equal(got, []float64{10, 10, 10, 10}) {
		t.Errorf("rate %v", got)
	}
	if got := find(t, out, "x.forward_queue_packets").Values; !slices.Equal(got, []float64{0, 3, 8, 2}) {
		t.Errorf("queue %v", got)
	}
}
