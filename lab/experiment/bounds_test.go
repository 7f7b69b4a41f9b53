package experiment

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

const boundsText = `
params: {loss: 0, rate: 10}
matrix: {loss: [0, 1]}
seeds: 2
variants: {tcp: {}, mptcp: {}}
links: {a: {ends: [client, server], rate_mbps: $rate, forward: {delay_ms: 5, loss_percent: $loss}, backward: {delay_ms: 7}}}
apps: {bulk: {type: download, from: server, to: client, bytes: 1000}}
`

// measure is a result for every cell: goodput is given by point, variant and seed.
func measure(x *Experiment, goodput func(c Cell) float64) []result.Cell {
	var cells []result.Cell
	for _, c := range x.Cells() {
		cells = append(cells, result.Cell{
			Params: c.Params, Variant: c.Variant, Seed: c.Seed,
			Metrics: map[string]map[string]float64{"bulk": {"goodput_mbps": goodput(c)}},
		})
	}
	return cells
}

// byPoint is 1, 3 for the seeds of tcp and 2, 6 for mptcp at the first point, ten times as much at the second.
func byPoint(c Cell) float64 {
	v := 1.0
	if c.Variant == "mptcp" {
		v = 2
	}
	if c.Seed == 2 {
		v *= 3
	}
	if c.Point == 1 {
		v *= 10
	}
	return v
}

func TestEvaluate(t *testing.T) {
	const at0, at1 = 2.0, 20.0 // mean over the seeds of tcp; mptcp has twice that
	for _, test := range []struct {
		bound       string
		left, right []float64
		ok          []bool
	}{
		{"expect: tcp.bulk.goodput_mbps > 2", []float64{at0, at1}, []float64{2, 2}, []bool{false, true}},
		{"expect: mptcp.goodput_mbps >= 2 * tcp.goodput_mbps", []float64{2 * at0, 2 * at1}, []float64{2 * at0, 2 * at1}, []bool{true, true}},
		{"expect: mptcp.goodput_mbps <= 0.5 * a.rate_mbps, when: loss == 1", []float64{2 * at1}, []float64{5}, []bool{false}},
		{"expect: 6 * tcp.goodput_mbps == a.forward.delay_ms + a.backward.delay_ms", []float64{12, 120}, []float64{12, 12}, []bool{true, false}},
		{"expect: tcp.goodput_mbps + a.forward.loss_percent != tcp.goodput_mbps + loss", []float64{at0, at1 + 1}, []float64{at0, at1 + 1}, []bool{false, false}},
		{"expect: 'harm(mptcp.goodput_mbps, tcp.goodput_mbps) == 0.5', when: a.forward.loss_percent > 0", []float64{0.5}, []float64{0.5}, []bool{true}},
		{"expect: mean(tcp.goodput_mbps) < 11.5, over: all", []float64{11}, []float64{11.5}, []bool{true}},
		{"expect: max(tcp.goodput_mbps) == sum(loss) * 20 * min(rate) / 10, over: all", []float64{at1}, []float64{20}, []bool{true}},
		{"expect: 'len(filter(mptcp.bulk.goodput_mbps, # > 10)) == len(map(loss, #)) - 1', over: all", []float64{1}, []float64{1}, []bool{true}},
		{"expect: min(tcp.goodput_mbps) == 2, over: all, when: loss < 1", []float64{at0}, []float64{2}, []bool{true}},
	} {
		x := mustLoad(t, boundsText+"bounds: [{"+test.bound+", because: it is a test}]", Options{})
		bounds, _ := x.Evaluate(measure(x, byPoint))
		if len(bounds) != len(test.ok) {
			t.Errorf("%s: %d results, want %d", test.bound, len(bounds), len(test.ok))
			continue
		}
		for i, b := range bounds {
			if b.Invalid != "" || b.Left != test.left[i] || b.Right != test.right[i] || b.OK != test.ok[i] {
				t.Errorf("%s, result %d: %+v, want %v, %v, %v", test.bound, i, b, test.left[i], test.right[i], test.ok[i])
			}
		}
	}
}

// TestEverySeed: what must hold with every seed is shown with the one that has the least to spare.
func TestEverySeed(t *testing.T) {
	for bound, want := range map[string]result.Bound{
		"tcp.goodput_mbps < 3":                      {Left: 3, Operator: "<", Right: 3, Seed: 2},
		"tcp.goodput_mbps <= 3":                     {Left: 3, Operator: "<=", Right: 3, Seed: 2, OK: true},
		"tcp.goodput_mbps > 0.5":                    {Left: 1, Operator: ">", Right: 0.5, Seed: 1, OK: true},
		"tcp.goodput_mbps == 3":                     {Left: 1, Operator: "==", Right: 3, Seed: 1},
		"tcp.goodput_mbps != 3.5":                   {Left: 3, Operator: "!=", Right: 3.5, Seed: 2, OK: true},
		"mptcp.goodput_mbps == 2*tcp.goodput_mbps":  {Left: 2, Operator: "==", Right: 2, Seed: 1, OK: true},
		"1 / (tcp.goodput_mbps - 3) > -1":           {Operator: ">", Seed: 2, Invalid: "1 / (tcp.goodput_mbps - 3) is not a finite number"},
		"mptcp.goodput_mbps + tcp.goodput_mbps > 3": {Left: 3, Operator: ">", Right: 3, Seed: 1},
	} {
		x := mustLoad(t, boundsText+"bounds: [{expect: "+bound+", when: loss == 0, over: seed, because: x}]", Options{})
		bounds, _ := x.Evaluate(measure(x, byPoint))
		want.Expression, want.Because, want.Params = bound, "x", bounds[0].Params
		if len(bounds) != 1 || !reflect.DeepEqual(bounds[0], want) {
			t.Errorf("%+v, want %+v", bounds, want)
		}
		if bounds, _ := x.Evaluate(measure(x, byPoint)[:1]); bounds[0].OK || bounds[0].Invalid == "" || bounds[0].Seed != 2 {
			t.Errorf("without all seeds: %+v", bounds)
		}
	}
}

// TestAggregates checks that a bound over what was not measured at one of the points, or over nothing, does not hold.
func TestAggregates(t *testing.T) {
	for _, test := range []struct {
		bound  string
		reason string // none: it holds
	}{
		{"max(tcp.goodput_mbps, mptcp.goodput_mbps) <= 100", "mptcp.goodput_mbps was not measured"},
		{"min(mptcp.goodput_mbps, tcp.goodput_mbps) >= 1", "mptcp.goodput_mbps was not measured"},
		{"median(tcp.goodput_mbps, mptcp.goodput_mbps, 7) <= 100", "mptcp.goodput_mbps was not measured"},
		{"mean(filter([tcp.goodput_mbps], # > 1000)) <= 100", "not a finite number"},
		{"median(filter([tcp.goodput_mbps], # > 1000)) <= 100", "not a finite number"},
		{"max(filter([tcp.goodput_mbps], # > 1000)) <= 100", "not a finite number"},
		{"len(filter([mptcp.goodput_mbps], # < 1)) == 0", "mptcp.goodput_mbps was not measured"},
		{"(mptcp.goodput_mbps < 1 ? 1 : 0) == 0", "mptcp.goodput_mbps was not measured"},
		{"(any([tcp.goodput_mbps, mptcp.bulk.goodput_mbps], # < 1) ? 1 : 0) == 0", "mptcp.bulk.goodput_mbps was not measured"},
		{"int(mptcp.goodput_mbps) <= 100", "mptcp.goodput_mbps was not measured"},
		{"len(filter(mptcp.bulk.second_mbps, # < 1)) <= 3", "mptcp.bulk.second_mbps was not measured"},
		{"sum(filter([tcp.goodput_mbps], # > 1000)) == 0", ""},
		{"sum([1, 2], 3.5, [tcp.goodput_mbps]) == 8.5", ""},
		{"max(3, [5, 4]) % 2 == tcp.goodput_mbps - 1", ""},
		{"median(9, 1, [4]) + median(1, 2) + sum(1, 2, 3) == 9.5 + tcp.goodput_mbps", ""},
		{"mean([1, 2], 6) == min(1 + tcp.goodput_mbps, 3.5)", ""},
	} {
		x := mustLoad(t, boundsText+"bounds: [{expect: '"+test.bound+"', when: loss == 0, because: it is a test}]", Options{})
		cells := measure(x, byPoint)
		for i := range cells {
			if cells[i].Variant == "mptcp" && cells[i].Seed == 2 {
				cells[i].Metrics = nil
			}
		}
		bounds, _ := x.Evaluate(cells)
		if b := bounds[0]; b.OK != (test.reason == "") || !strings.Contains(b.Invalid, test.reason) {
			t.Errorf("%s: %+v, want the reason %q", test.bound, b, test.reason)
		}
	}
}

// TestEverySecond checks that a bound over goodputs second by second sees when one falls behind another, wherever that is, and that it does not hold where none was measured.
func TestEverySecond(t *testing.T) {
	full := []float64{2, 8, 8, 8, 8, 8, 8, 8, 8, 8}
	for name, test := range map[string]struct {
		tcp    []float64 // of seed 2; seed 1 and mptcp have full
		behind float64   // the left side of the bound
		reason string
	}{
		"the same":                  {full, 0, ""},
		"before the trouble":        {[]float64{0, 0, 0, 8, 8, 8, 8, 8, 8, 8}, 0, ""},
		"a loss, made up for":       {[]float64{2, 8, 8, 8, 2, 14, 8, 8, 8, 8}, 0, ""},
		"a loss, not all made up":   {[]float64{2, 8, 8, 8, 2, 10, 8, 8, 8, 8}, 0.5, ""},
		"a second without anything": {[]float64{2, 8, 8, 8, 8, 8, 8, 0, 8, 8}, 1, ""},
		"three quarters for long":   {[]float64{2, 8, 8, 8, 6, 6, 6, 6, 6, 6}, 1.25, ""},
		"more at first":             {[]float64{2, 8, 8, 80, 8, 8, 8, 4, 4, 8}, 1, ""},
		"ended sooner":              {[]float64{2, 8, 8, 8, 8, 8}, 0, ""},
		"nothing measured":          {nil, 0, "tcp.bulk.second_mbps was not measured"},
	} {
		x := mustLoad(t, boundsText+"bounds: [{expect: 'behind(tcp.bulk.second_mbps[3:], mptcp.bulk.second_mbps[3:]) <= 0.5', over: seed, when: loss == 0, because: x}]", Options{})
		cells := measure(x, byPoint)
		for i := range cells {
			values := full
			if cells[i].Variant == "tcp" && cells[i].Seed == 2 {
				values = test.tcp
			}
			if values != nil {
				cells[i].Series = []result.Series{{Name: "bulk.goodput_mbps", StartS: 1, StepS: 1, Values: values}}
			}
		}
		bounds, _ := x.Evaluate(cells)
		if b := bounds[0]; b.Left != test.behind || b.OK != (test.behind <= 0.5 && test.reason == "") || b.Invalid != test.reason {
			t.Errorf("%s: %+v, want %g behind and the reason %q", name, b, test.behind, test.reason)
		}
	}
}

// TestAggregatesOverAll is the same for lists over all points.
func TestAggregatesOverAll(t *testing.T) {
	for _, bound := range []string{"max(tcp.goodput_mbps) <= 100", "min(tcp.goodput_mbps) >= 0", "median(tcp.goodput_mbps) >= 0", "mean(tcp.goodput_mbps) >= 0"} {
		x := mustLoad(t, boundsText+"bounds: [{expect: '"+bound+"', over: all, because: it is a test}]", Options{})
		cells := measure(x, byPoint)
		cells[len(cells)-3].Metrics = nil // tcp at the last point
		if bounds, _ := x.Evaluate(cells); bounds[0].OK || !strings.Contains(bounds[0].Invalid, "tcp.goodput_mbps was not measured") {
			t.Errorf("%s: %+v, want it to be invalid", bound, bounds[0])
		}
	}
}

// TestEvaluateTwice checks that a result that was written and read again gives the same bounds.
func TestEvaluateTwice(t *testing.T) {
	x := mustLoad(t, boundsText+"bounds: [{expect: tcp.goodput_mbps > 2, because: x}]", Options{})
	cells := measure(x, byPoint)
	text, err := json.Marshal(cells)
	if err != nil {
		t.Fatal(err)
	}
	var again []result.Cell
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	first, _ := x.Evaluate(cells)
	second, _ := x.Evaluate(again)
	if !reflect.DeepEqual(first, second) || first[0].Params["loss"] != 0 || first[0].Operator != ">" {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// TestEvaluateInvalid checks that what was not measured never makes a bound hold.
func TestEvaluateInvalid(t *testing.T) {
	x := mustLoad(t, boundsText+`bounds:
  - {expect: tcp.goodput_mbps >= 0, because: point}
  - {expect: min(tcp.goodput_mbps) >= 0, because: all, over: all}
  - {expect: tcp.bulk.bytes != 1, because: it is not measured}
  - {expect: tcp.goodput_mbps / (rate - 10) >= 0, because: it is infinite}
`, Options{})
	broken := measure(x, byPoint)
	broken[1].Invalid = "BGP did not converge"
	for name, test := range map[string]struct {
		cells []result.Cell
		want  []string // what the bounds say, in order: two by point, one over all, two by point, two by point
	}{
		"complete": {measure(x, byPoint), []string{"", "", "", "tcp.bulk.bytes was not measured", "tcp.bulk.bytes was not measured", "is not a finite number", "is not a finite number"}},
		"invalid": {broken, []string{"variant tcp, seed 2 is invalid: BGP did not converge", "", "BGP did not converge",
			"BGP did not converge", "tcp.bulk.bytes was not measured", "BGP did not converge", "is not a finite number"}},
		"interrupted": {measure(x, byPoint)[:7], []string{"", "variant mptcp, seed 2 did not run", "did not run",
			"tcp.bulk.bytes was not measured", "did not run", "is not a finite number", "did not run"}},
	} {
		bounds, _ := x.Evaluate(test.cells)
		if len(bounds) != len(test.want) {
			t.Fatalf("%s: %d results, want %d", name, len(bounds), len(test.want))
		}
		for i, b := range bounds {
			if b.OK != (test.want[i] == "") || !strings.Contains(b.Invalid, test.want[i]) || (test.want[i] == "") != (b.Invalid == "") {
				t.Errorf("%s, result %d: ok %v, %q; want %q", name, i, b.OK, b.Invalid, test.want[i])
			}
		}
		if _, err := json.Marshal(bounds); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPublished(t *testing.T) {
	x := mustLoad(t, boundsText+"paper: [{metric: mptcp.goodput_mbps / tcp.goodput_mbps, value: 1.9, when: loss == 1, source: a paper}]", Options{})
	_, papers := x.Evaluate(measure(x, byPoint))
	want := []result.Published{{Metric: "mptcp.goodput_mbps / tcp.goodput_mbps", Params: map[string]any{"loss": 1}, Source: "a paper", Published: 1.9, Ours: 2}}
	if !reflect.DeepEqual(papers, want) {
		t.Errorf("%+v", papers)
	}
	if _, papers := x.Evaluate(nil); len(papers) != 0 {
		t.Errorf("without results: %+v", papers)
	}
}

// TestImpliedVariant checks the names a file without variants has.
func TestImpliedVariant(t *testing.T) {
	text := strings.Replace(boundsText, "variants: {tcp: {}, mptcp: {}}", "", 1) + "bounds:\n"
	for _, name := range []string{"bulk.goodput_mbps", "run.bulk.goodput_mbps", "run.goodput_mbps", "client.timeouts", "a.forward_drops", "run.a.backward_bytes", "bulk.goodput_mbps * a.rate_mbps"} {
		text += "  - {expect: " + name + " > 0, because: x}\n"
	}
	mustLoad(t, text, Options{})
}

// TestNestedParameters: a bound may name what is nested behind a direction, which may be the bottleneck.
func TestNestedParameters(t *testing.T) {
	x := mustLoad(t, "links: {a: {ends: [client, server], rate_mbps: 9, then: {rate_mbps: 4, then: {delay_ms: 3}}, backward: {then: {rate_mbps: 2}}}}"+bulk+
		"bounds: [{expect: bulk.goodput_mbps == a.forward.then.rate_mbps - a.backward.then.rate_mbps, because: x}, {expect: bulk.goodput_mbps + 1 == a.backward.then.then.delay_ms, because: x}]", Options{})
	bounds, _ := x.Evaluate(measure(x, func(Cell) float64 { return 2 }))
	for _, b := range bounds {
		if !b.OK {
			t.Errorf("%+v", b)
		}
	}
}

// TestVariantsDiffer: a bound about one variant sees that one's links, and one about several none in which they differ.
func TestVariantsDiffer(t *testing.T) {
	text := strings.Replace(boundsText, "{tcp: {}, mptcp: {}}", "{tcp: {}, mptcp: {rate: 40}}", 1) + "bounds: [{expect: %, because: x}]"
	x := mustLoad(t, strings.Replace(text, "%", "mptcp.goodput_mbps != a.rate_mbps", 1), Options{})
	if bounds, _ := x.Evaluate(measure(x, byPoint)); bounds[0].Right != 40 {
		t.Errorf("%+v, want 40 at the right", bounds[0])
	}
	for bound, name := range map[string]string{"tcp.goodput_mbps + mptcp.goodput_mbps > a.rate_mbps": "a.rate_mbps", "tcp.goodput_mbps > 0, when: rate > 0": "rate"} {
		if _, err := loadText(t, strings.Replace(text, "%", bound, 1), Options{}); err == nil || !strings.Contains(err.Error(), ": "+name+" is not the same in all variants") {
			t.Errorf("%s: %v", bound, err)
		}
	}
}

// TestSetLeavesNoPoint checks that a --set which leaves a bound no point is no mistake.
func TestSetLeavesNoPoint(t *testing.T) {
	text := boundsText + "bounds: [{expect: tcp.goodput_mbps > 2, when: loss == 1, because: x}]"
	x := mustLoad(t, text, Options{Set: []string{"loss=0"}})
	if bounds, _ := x.Evaluate(measure(x, byPoint)); len(bounds) != 0 {
		t.Errorf("%+v", bounds)
	}
}
