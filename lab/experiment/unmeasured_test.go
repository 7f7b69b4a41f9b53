package experiment

import (
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

// TestUnmeasuredSeconds checks that a bound sees which seconds have no goodput: those before the application starts, and those in which only some seeds
// still run. What it leaves out of the list may be missing.
func TestUnmeasuredSeconds(t *testing.T) {
	for bound, reason := range map[string]string{
		"len(filter(tcp.bulk.second_mbps[2:5], # < 1)) == 0":                  "",
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
