package report

import (
	"fmt"
	"math"
	"math/rand/v2"

	"plait.dev/plait/lab/result"
)

// The files below look like what the lab writes; the numbers are drawn from fixed seeds.

// exits is a content server with two exits: four pairs of link rates, a stream and a download, TCP against MPTCP, three
// seeds; the rate of link a falls at 10 s and the link fails at 20 s.
func exits() *result.File {
	f := &result.File{
		Format: result.Format,
		Experiment: result.Experiment{Name: "two-exits", Group: "egress",
			Question: "Do two exits carry a download faster than the BGP best path?",
			About:    "A content server with two BGP exits serves a client while the best path loses half its rate and then fails silently.",
			Source:   "name: two-exits\ngroup: egress\n", Topology: epe()},
		Provenance: result.Provenance{Command: "plait lab run two-exits --seeds 3", Seeds: []int{1, 2, 3}, Kernel: "6.12.107+deb13-cloud-amd64",
			Image: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Plait: "v0.1.0", QEMU: "7.2.22", ClockBase: "2026-01-01T00:00:00Z"},
	}
	f.Experiment.Plots = []result.Plot{
		{Kind: "bars", Title: "Goodput of the download", Show: []string{"bulk.goodput_mbps"}},
		{Kind: "series", Title: "Goodput while the best path degrades", Show: []string{"bulk.goodput_mbps"}},
		{Kind: "series", Title: "What each subflow carries", Show: []string{"bulk/*.goodput_mbps"}, Points: []map[string]any{{"a_mbps": 30, "b_mbps": 15}}},
		{Kind: "bars", Show: []string{"bulk.longest_silence_ms"}, LogY: true},
	}
	r := rand.New(rand.NewPCG(1, 0))
	for _, rates := range [][2]float64{{30, 15}, {30, 30}, {15, 30}, {15, 15}} {
		a, b := rates[0], rates[1]
		params := map[string]any{"a_mbps": a, "b_mbps": b, "size_bytes": 100_000_000}
		mean := map[string]float64{}
		for _, variant := range []string{"tcp", "mptcp"} {
			for seed := 1; seed <= 3; seed++ {
				cell := exitsCell(r, params, variant, seed, a, b)
				mean[variant] += cell.Metrics["bulk"]["goodput_mbps"] / 3
				f.Cells = append(f.Cells, cell)
			}
		}
		at := map[string]any{"a_mbps": a, "b_mbps": b}
		f.Bounds = append(f.Bounds,
			result.Bound{Expression: "mptcp.bulk.goodput_mbps >= 0.6 * (a_mbps + b_mbps)", Because: "Link a has half its rate after a third of the time and none after two thirds; headers take 8 %.",
				Params: at, Left: mean["mptcp"], Operator: ">=", Right: 0.6 * (a + b), OK: mean["mptcp"] >= 0.6*(a+b)},
			result.Bound{Expression: "mptcp.bulk.goodput_mbps >= tcp.bulk.goodput_mbps", Because: "Several paths are never worse than the best one alone.",
				Params: at, Left: mean["mptcp"], Operator: ">=", Right: mean["tcp"], OK: mean["mptcp"] >= mean["tcp"]})
		f.Paper = append(f.Paper, result.Published{Metric: "mptcp.bulk.goodput_mbps", Params: at, Source: "SRv6-EPE suite, scenario 2", Published: 0.66 * (a + b), Ours: mean["mptcp"]})
	}
	return f
}

func exitsCell(r *rand.Rand, params map[string]any, variant string, seed int, a, b float64) result.Cell {
	cell := result.Cell{Params: params, Variant: variant, Seed: seed, VirtualS: 30}
	var total, one, two []float64
	sum := 0.0
	for i := range 300 {
		at := float64(i+1) / 10
		onA := 0.93 * a * (1 - math.Exp(-at)) * (1 + 0.05*r.NormFloat64())
		if at > 10 {
			onA /= 2
		}
		if at > 20 {
			onA = 0
		}
		onB := 0.0
		if variant == "mptcp" {
			onB = 0.92 * b * (1 - math.Exp(-at/1.5)) * (1 + 0.05*r.NormFloat64())
		}
		if at > 20 && at < 21.4 {
			onB = 0
		}
		one, two, total = append(one, math.Round(onA*1000)/1000), append(two, math.Round(onB*1000)/1000), append(total, math.Round((onA+onB)*1000)/1000)
		sum += (onA + onB) / 300
	}
	series := func(name string, values []float64) result.Series {
		return result.Series{Name: name, Unit: "Mbit/s", StartS: 0.1, StepS: 0.1, Values: values}
	}
	silence := 1300.0 + 20*float64(seed)
	if variant == "tcp" {
		silence = 10000
	}
	cell.Series = []result.Series{series("bulk.goodput_mbps", total)}
	if variant == "mptcp" {
		cell.Series = append(cell.Series, series("bulk/1.goodput_mbps", one), series("bulk/2.goodput_mbps", two))
		cell.Series[1].Label, cell.Series[2].Label = "2001:db8:1::10 -> 2001:db8:c::2", "2001:db8:1::b -> 2001:db8:c::2"
	}
	cell.Metrics = map[string]map[string]float64{"bulk": {"goodput_mbps": sum, "longest_silence_ms": silence, "retransmissions": 12}, "a": {"forward_bytes": 1e8}}
	cell.Marks = []result.Mark{{AtS: 10, Text: fmt.Sprintf("a: rate %g Mbit/s", a/2)}, {AtS: 20, Text: "a: blackhole forward"}, {AtS: 21.4, Text: "server: route via b"}}
	return cell
}

// bursts is 64 KB bursts with every algorithm of the kernel on a grid of loss and RTT.
func bursts() *result.File {
	f := &result.File{
		Format: result.Format,
		Experiment: result.Experiment{Name: "bursts-loss-rtt", Group: "congestion",
			Question: "How long does a 64 KB burst take with each congestion control of the kernel?", Source: "name: bursts-loss-rtt\n",
			Topology: chain("server", "r1", "r2", "client")},
		Provenance: result.Provenance{Command: "plait lab run bursts-loss-rtt", Seeds: []int{1}, Kernel: "6.12.107+deb13-cloud-amd64", Image: "9f86", Plait: "v0.1.0", QEMU: "7.2.22", ClockBase: "2026-01-01T00:00:00Z"},
	}
	f.Experiment.Plots = []result.Plot{
		{Kind: "heat", Title: "95th percentile of the latency", Show: []string{"desktop.p95_ms"}, X: "loss_percent", Y: "rtt_ms", LogY: true},
		{Kind: "cdf", Title: "Latency of the bursts", Show: []string{"desktop.latency_ms"}, LogY: true, Points: []map[string]any{{"rtt_ms": 200, "loss_percent": 0.1}, {"rtt_ms": 200, "loss_percent": 3}}},
		{Kind: "box", Title: "Latency of the bursts", Show: []string{"desktop.latency_ms"}, LogY: true, Points: []map[string]any{{"rtt_ms": 200, "loss_percent": 0.1}, {"rtt_ms": 200, "loss_percent": 3}}},
	}
	r := rand.New(rand.NewPCG(2, 0))
	algorithms := []string{"bbr", "bic", "cdg", "cubic", "highspeed", "htcp", "hybla", "illinois", "reno", "scalable", "vegas", "veno", "westwood", "yeah"}
	for _, rtt := range []int{50, 100, 200, 300} {
		for _, loss := range []float64{0.1, 0.3, 1, 3, 10} {
			params := map[string]any{"rtt_ms": rtt, "loss_percent": loss}
			p95 := map[string]float64{}
			for i, algorithm := range algorithms {
				var latency []float64
				for range 200 {
					rounds := 3 + float64(i%5)*0.4
					for r.Float64() < math.Min(0.8, loss*float64(4+i%7)/20) {
						rounds += 2
					}
					latency = append(latency, math.Round(float64(rtt)*rounds*(1+0.03*r.ExpFloat64())*100)/100)
				}
				stat := result.Summarise(latency)
				sorted := append([]float64{}, latency...)
				cv := distribution(sorted, "", 0)
				p95[algorithm] = cv.xs[int(0.95*float64(len(cv.xs)))]
				f.Cells = append(f.Cells, result.Cell{Params: params, Variant: algorithm, Seed: 1, VirtualS: 400,
					Metrics: map[string]map[string]float64{"desktop": {"mean_ms": stat.Mean, "p50_ms": result.Percentile(sorted, 50), "p95_ms": p95[algorithm]}},
					Samples: []result.Samples{{Name: "desktop.latency_ms", Unit: "ms", Values: latency}}})
			}
			f.Bounds = append(f.Bounds, result.Bound{Expression: "bbr.p95_ms <= cubic.p95_ms", Because: "BBR does not slow down for loss.", Params: params,
				Left: p95["bbr"], Operator: "<=", Right: p95["cubic"], OK: p95["bbr"] <= p95["cubic"]})
		}
	}
	return f
}

// plain is a small experiment that names no plots, with two algorithms, one of whose runs is invalid.
func plain() *result.File {
	f := exits()
	f.Experiment.Name, f.Experiment.Group, f.Experiment.Plots, f.Experiment.Topology = "queues", "stock", nil, parallel()
	f.Experiment.Question = "Does a deep queue delay an interactive flow beside a download?"
	f.Cells = nil
	f.Bounds = nil
	f.Paper = nil
	r := rand.New(rand.NewPCG(3, 0))
	for i, cc := range []string{"cubic", "bbr", "vegas"} {
		var rtt []float64
		for range 300 {
			rtt = append(rtt, math.Round((20+float64(2-i)*30*r.Float64()+5*r.ExpFloat64())*100)/100)
		}
		cell := result.Cell{Params: map[string]any{"queue_packets": 100}, Variant: cc, Seed: 1, VirtualS: 30,
			Metrics: map[string]map[string]float64{"ping": {"p50_ms": result.Percentile(rtt, 50)}, "bulk": {"goodput_mbps": 28 - float64(i)}},
			Samples: []result.Samples{{Name: "ping.rtt_ms", Unit: "ms", Values: rtt}},
			Series:  []result.Series{{Name: "bulk.goodput_mbps", Unit: "Mbit/s", StartS: 0.1, StepS: 0.1, Values: rtt}}}
		if cc == "vegas" {
			cell = result.Cell{Params: cell.Params, Variant: cc, Seed: 1, Invalid: "congestion control vegas is not registered"}
		}
		f.Cells = append(f.Cells, cell)
	}
	f.Bounds = []result.Bound{{Expression: "cubic.ping.p50_ms <= 30", Because: "100 packets at 30 Mbit/s are 40 ms.", Left: 51, Operator: "<=", Right: 30},
		{Expression: "vegas.ping.p50_ms <= 30", Because: "Vegas keeps queues short.", Operator: "<=", Right: 30, Invalid: "vegas has no valid run"}}
	f.Provenance.Seeds = []int{1}
	return f
}

func epe() result.Topology {
	router := func(name string, asn uint32) result.Node { return result.Node{Name: name, Kind: "router", ASN: asn} }
	return result.Topology{
		Nodes: []result.Node{router("server", 65000), router("rr", 65000), router("as1", 65000), router("as2", 65000),
			router("ta", 64496), router("tb", 64497), router("isp", 64500), {Name: "client", Kind: "host"}},
		Links: []result.Link{
			{Name: "csp", Ends: []string{"server", "rr", "as1", "as2"}},
			{Name: "a", Ends: []string{"as1", "ta"}, Forward: "30 Mbit/s, 100 packets"},
			{Name: "b", Ends: []string{"as2", "tb"}, Forward: "15 Mbit/s, 100 packets"},
			{Name: "ta-isp", Ends: []string{"ta", "isp"}, Forward: "10 ms"},
			{Name: "tb-isp", Ends: []string{"tb", "isp"}, Forward: "10 ms"},
			{Name: "access", Ends: []string{"isp", "client"}},
		},
	}
}

func chain(names ...string) result.Topology {
	t := result.Topology{}
	for i, name := range names {
		t.Nodes = append(t.Nodes, result.Node{Name: name, Kind: "host"})
		if i > 0 {
			t.Links = append(t.Links, result.Link{Name: fmt.Sprintf("l%d", i), Ends: []string{names[i-1], name},
				Forward: "30 Mbit/s, 100 packets, 1 % loss, 25 ms", Backward: "10 Mbit/s, 25 ms"})
		}
	}
	return t
}

// parallel is two hosts with two links between them.
func parallel() result.Topology {
	return result.Topology{
		Nodes: []result.Node{{Name: "server", Kind: "host"}, {Name: "client", Kind: "host"}},
		Links: []result.Link{
			{Name: "wifi", Ends: []string{"server", "client"}, Forward: "40 Mbit/s, 10 ms, 100 packets"},
			{Name: "lte", Ends: []string{"server", "client"}, Forward: "cellular verizon-lte-down, 25 ms", Backward: "cellular verizon-lte-up, 25 ms"},
		},
	}
}
