package link

import (
	"math"
	"slices"
	"testing"

	"plait.dev/plait/internal/rung"
)

// cellularTargets is the statistics of a recording that the model must meet.
type cellularTargets struct {
	name          string
	seconds       float64
	meanMbps      float64
	acf           [len(acfLagsS)]float64 // of the rate in 100 ms, at acfLagsS
	outageShare   float64                // of time
	outagesPerMin float64
}

func targetsOf(name string, o *observation) cellularTargets {
	return cellularTargets{name, o.seconds, o.meanMbps, o.acf, o.outageShare, o.outagesPerMin}
}

// checkTargets wants every statistic of a recording within 3 standard deviations of its mean over runs of the model as
// long as the recording: the recording could be a run of the model.
func checkTargets(t *testing.T, name string, want cellularTargets, runs []observation) {
	t.Helper()
	check := func(what string, recorded float64, statistic func(o *observation) float64) {
		t.Helper()
		x := each(runs, statistic)
		if m, sd := mean(x), deviation(x); math.Abs(recorded-m) > 3*sd {
			t.Errorf("%s: %s: recorded %.3f, model %.3f, standard deviation %.3f", name, what, recorded, m, sd)
		}
	}
	check("mean rate", want.meanMbps, func(o *observation) float64 { return o.meanMbps })
	check("outage share", want.outageShare, func(o *observation) float64 { return o.outageShare })
	check("outages per minute", want.outagesPerMin, func(o *observation) float64 { return o.outagesPerMin })
	for i, lag := range acfLagsS {
		check(formatLag(lag), want.acf[i], func(o *observation) float64 { return o.acf[i] })
		// A model that knows nothing of the recording would meet a bound of many standard deviations.
		if d := math.Abs(want.acf[i] - mean(each(runs, func(o *observation) float64 { return o.acf[i] }))); d > 0.3 {
			t.Errorf("%s: %s: differs by %.2f, want <= 0.3", name, formatLag(lag), d)
		}
	}
}

func TestCellularTargets(t *testing.T) {
	rung.Long(t)
	for _, want := range cellularRecorded {
		if !slices.Contains(CellularProfiles(), want.name) {
			t.Fatalf("no profile %s", want.name)
		}
		checkTargets(t, want.name, want, runsLike(t, want.name, int(want.seconds*1000)))
	}
}
