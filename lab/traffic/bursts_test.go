package traffic

import (
	"context"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/lab/experiment"
)

func newLedger(sizes ...int64) *ledger { return &ledger{sizes: sizes, meter: newMeter(0, tick)} }

func TestLedgerTimesBursts(t *testing.T) {
	l := newLedger(1000)
	l.send(at(0))
	l.receive(at(50), 600)
	if complete, idle := l.receive(at(70), 400); complete != 1 || !idle {
		t.Errorf("%d complete, idle %v", complete, idle)
	}
	// Two under way at once; one read ends the first of them and begins the second.
	l.send(at(2000))
	l.send(at(2010))
	l.receive(at(2050), 500)
	if complete, idle := l.receive(at(2060), 900); complete != 2 || idle {
		t.Errorf("%d complete, idle %v", complete, idle)
	}
	if complete, idle := l.receive(at(2110), 600); complete != 3 || !idle {
		t.Errorf("%d complete, idle %v", complete, idle)
	}
	out := &Outcome{Metrics: map[string]float64{}}
	l.outcome(0, at(2110), out)
	if want := []float64{20, 10, 50}; !slices.Equal(out.Samples[0].Values, want) {
		t.Errorf("%s %v, want %v", out.Samples[0].Name, out.Samples[0].Values, want)
	}
	if want := []float64{70, 60, 100}; !slices.Equal(out.Samples[1].Values, want) {
		t.Errorf("%s %v, want %v", out.Samples[1].Name, out.Samples[1].Values, want)
	}
}

// One read may hold several bursts, of several sizes.
func TestLedgerSizesInTurn(t *testing.T) {
	l := newLedger(100, 1000)
	for i := range 4 {
		l.send(at(10 * i))
	}
	if complete, idle := l.receive(at(50), 1150); complete != 2 || idle {
		t.Errorf("%d complete, idle %v", complete, idle)
	}
	if complete, idle := l.receive(at(60), 1050); complete != 4 || !idle {
		t.Errorf("%d complete, idle %v", complete, idle)
	}
	out := &Outcome{Metrics: map[string]float64{}}
	l.outcome(0, at(60), out)
	if want := []float64{50, 40, 40, 30}; !slices.Equal(out.Samples[1].Values, want) {
		t.Errorf("%s %v, want %v", out.Samples[1].Name, out.Samples[1].Values, want)
	}
}

func TestLedgerTellsTheMeterWhenDataIsDue(t *testing.T) {
	l := newLedger(1000)
	for _, start := range []int{0, 2000} {
		l.send(at(start))
		l.meter.add(at(start+50), 1000)
		l.receive(at(start+50), 1000)
	}
	if got := l.meter.outcome(at(2050)).Metrics["longest_silence_ms"]; got != 50 {
		t.Errorf("longest silence %g ms, want 50: nothing is due between bursts", got)
	}
}

func TestLedgerStatistics(t *testing.T) {
	l := newLedger(100)
	for i, took := range []int{9000, 500, 1000, 1001} {
		l.send(at(10_000 * i))
		l.receive(at(10_000*i+took), 100)
	}
	l.send(at(40_000)) // on its way for more than a second at the end
	l.send(at(49_500)) // too young to tell
	out := &Outcome{Metrics: map[string]float64{}}
	l.outcome(1, at(50_000), out)
	for name, want := range map[string]float64{
		"count": 3, "mean_ms": round(2501.0/3, 3), "max_ms": 1001, "p50_ms": 1000, "within_1s_percent": 50, "first_last_mean_ms": 0,
	} {
		if got := out.Metrics[name]; got != want {
			t.Errorf("%s = %g, want %g", name, got, want)
		}
	}
}

func TestLedgerWithoutBursts(t *testing.T) {
	out := &Outcome{Metrics: map[string]float64{}}
	newLedger(100).outcome(0, at(1000), out)
	if len(out.Metrics) != 1 || out.Metrics["count"] != 0 {
		t.Errorf("metrics %v, want count 0 alone", out.Metrics)
	}
}

// Where an open loop cannot write, the bursts that would have followed are late, too.
func TestOpenLoopBlocked(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
	defer cancel()
	l := newLedger(100)
	r := &run{app: &experiment.App{Count: 25, GapMs: 100, OpenLoop: true}, clock: Clock{Origin: time.Now()}, stop: 950 * time.Millisecond}
	written := 0
	err := r.runBursts(ctx, l, func(int64) error {
		if written++; written <= 3 {
			l.receive(l.due[len(l.due)-1], 100)
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}, nil)
	if first := l.due[0]; err == nil || len(l.due) != 1+int((r.stop-first)/(100*time.Millisecond)) {
		t.Fatalf("%d bursts were due until %v, the first at %v, %v", len(l.due), r.stop, first, err)
	}
	out := &Outcome{Metrics: map[string]float64{}}
	l.outcome(0, time.Minute, out)
	if got, want := out.Metrics["within_1s_percent"], round(100*float64(len(l.last))/float64(len(l.due)), 3); got != want {
		t.Errorf("%g %% within a second, want %g: the %d that were written", got, want, len(l.last))
	}
}
