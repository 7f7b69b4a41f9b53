package experiment

import (
	"reflect"
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

// TestUnmeasuredSeconds checks that a bound sees which seconds have no goodput: those before the application starts, those in which only some seeds
// still run, and all after its end. What it leaves out of the list may be missing.
func TestUnmeasuredSeconds(t *testing.T) {
	for bound, reason := range map[string]string{
		"len(filter(tcp.bulk.second_mbps[2:5], # < 1)) == 0":                  "",
		"len(filter(tcp.bulk.second_mbps[50:], # < 1)) == 0":                  "tcp.bulk.second_mbps was not measured",
		"sum(tcp.bulk.second_mbps[50:60]) <= 1":                               "tcp.bulk.second_mbps was not measured",
		"behind(mptcp.bulk.second_mbps[2:5], tcp.bulk.second_mbps[2:5]) == 0": "",
		"len(filter(tcp.bulk.second_mbps[1:5], # < 1)) == 0":                  "tcp.bulk.second_mbps was not measured",
		"len(filter(tcp.bulk.second_mbps[2:], # < 1)) == 0":                   "tcp.bulk.second_mbps was not measured",
		"len(filter(tcp.bulk.second_mbps, # < 1)) == 0":                       "tcp.bulk.second_mbps was not measured",
	} {
		x := mustLoad(t, boundsText+"bounds: [{expect: '"+bound+"', when: loss == 0, because: it is a test}]", Options{})
		cells := measure(x, byPoint)
		for i := range cells {
			cells[i].Series = []result.Series{{Name: "bulk.goodput_mbps", StartS: 3, StepS: 1, Values: []float64{8, 8, 8, 8}[:4-i%2]}}
		}
		bounds, _ := x.Evaluate(cells)
		if b := bounds[0]; b.OK != (reason == "") || !strings.Contains(b.Invalid, reason) {
			t.Errorf("%s: %+v, want the reason %q", bound, b, reason)
		}
	}
}

// TestLastSecond checks that the second in which an application ends is none of its seconds: the interval of its end has a part of the goodput, and would make of
// a steady 8 Mbit/s the worst second, or all of a mean.
func TestLastSecond(t *testing.T) {
	for name, test := range map[string]struct {
		started, took, stop, duration float64 // 0 if it has none
		values                        []float64
		want                          []any
	}{
		"ends in an interval":            {0.000021, 3.1, 0, 0, []float64{8, 8, 8, 8, 8, 8, 1.6}, []any{8.0, 8.0, 8.0}},
		"ends in the last of a second":   {0, 2.9, 0, 0, []float64{8, 8, 8, 8, 8, 6.4}, []any{8.0, 8.0}},
		"ends with a second, as rounded": {0.333333, 2.666666, 0, 0, []float64{8, 8, 8, 8, 8, 8}, []any{8.0, 8.0, 8.0}},
		"is stopped":                     {0, 0, 2.1, 9, []float64{8, 8, 8, 8, 1.6}, []any{8.0, 8.0}},
		"ends with the cell":             {0, 0, 9, 3, []float64{8, 8, 8, 8, 8, 8}, []any{8.0, 8.0, 8.0}},
	} {
		spec := &Spec{Apps: map[string]*App{"bulk": {StopS: test.stop}}, DurationS: test.duration}
		cell := &result.Cell{
			Metrics: map[string]map[string]float64{"bulk": {"start_s": test.started}},
			Series:  []result.Series{{Name: "bulk.goodput_mbps", StartS: 0.5, StepS: 0.5, Values: test.values}},
		}
		if test.took > 0 {
			cell.Metrics["bulk"]["completion_s"] = test.took
		}
		if got := meanSeconds([]*result.Cell{cell}, spec, "bulk"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
