package report

import (
	"reflect"
	"testing"

	"plait.dev/plait/lab/result"
)

func TestChoose(t *testing.T) {
	matrix := bursts()
	matrix.Experiment.Plots = nil
	for name, test := range map[string]struct {
		of   *result.File
		want []result.Plot
	}{
		"variants at one point": {plain(), []result.Plot{
			{Kind: "bars", Show: []string{"ping.p50_ms"}}, {Kind: "cdf", Show: []string{"ping.rtt_ms"}}, {Kind: "series", Show: []string{"bulk.goodput_mbps"}}}},
		"two parameters, values over two decades": {matrix, []result.Plot{
			{Kind: "heat", Show: []string{"desktop.p95_ms"}, X: "loss_percent", Y: "rtt_ms", LogY: true}, {Kind: "box", Show: []string{"desktop.latency_ms"}, LogY: true}}},
	} {
		if got := choose(newSource(test.of, &colours{})); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
