package report

import (
	"reflect"
	"regexp"
	"testing"

	"plait.dev/plait/lab/result"
)

func TestMainMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		of   source
		want []metricRef
	}{
		"those of the plots, then of the bounds": {newSource(exits(), &colours{}), []metricRef{{"bulk", "goodput_mbps"}, {"bulk", "longest_silence_ms"}}},
		"those of the bounds":                    {newSource(plain(), &colours{}), []metricRef{{"ping", "p50_ms"}}},
	} {
		if got := mainMetrics(test.of); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	f := exits()
	f.Experiment.Plots, f.Bounds = nil, nil
	if got, want := mainMetrics(newSource(f, &colours{})), []metricRef{{"bulk", "goodput_mbps"}, {"bulk", "longest_silence_ms"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("nothing says what matters: %v, want %v", got, want)
	}
}

func TestLeadMarksTheBest(t *testing.T) {
	s := small() // a has 1.75 and 2.75 ms, b 4.75 and 5.75 ms
	l := newLead(s)
	if want := []leadCell{{Value: "1.75", SD: "±0.35", Best: true}, {Value: "4.75", SD: "±0.35"}}; !reflect.DeepEqual(l.Rows[0].Cells[0], want) {
		t.Errorf("cells = %v, want %v: less is better", l.Rows[0].Cells[0], want)
	}
	for i := range s.file.Cells {
		s.file.Cells[i].Metrics["app"]["p50_ms"] = 3
	}
	for _, cell := range newLead(s).Rows[0].Cells[0] {
		if cell.Best {
			t.Error("one of two equals is marked as the best")
		}
	}
}

// TestRunsThatFailedAreNoGain: a mean of some of the runs says so, and is not the best.
func TestRunsThatFailedAreNoGain(t *testing.T) {
	s := small()
	s.file.Cells[1].Invalid = "no subflow" // a, the better one, at the first point
	a, b := leadCell{Value: "1.50", Few: "1 of 2 runs"}, leadCell{Value: "4.75", SD: "±0.35"}
	if got := newLead(s).Rows[0].Cells[0]; !reflect.DeepEqual(got, []leadCell{a, b}) {
		t.Errorf("cells = %+v", got)
	}
	a, b = leadCell{Value: "2.12", Few: "3 of 4 runs"}, leadCell{Value: "5.25"}
	if got := newLeadMean(s).Rows[0].Cells[0]; !reflect.DeepEqual(got, []leadCell{a, b}) {
		t.Errorf("over the points: %+v", got)
	}
	if got := a.forText().text; got != "2.12 (3 of 4 runs)" {
		t.Errorf("the terminal shows %q", got)
	}
	s.file.Cells[1].Invalid, s.file.Cells[2].Invalid = "", "no subflow" // b's
	if got := newLead(s).Rows[0].Cells[0]; !got[0].Best || got[1].Few != "1 of 2 runs" {
		t.Errorf("with a run less of the worse one: %+v", got)
	}
}

func TestHeadline(t *testing.T) {
	if got, want := headline(small()), "App p50: a 2.25\u00a0ms, b 5.25\u00a0ms, mean over 2 points"; got != want {
		t.Errorf("headline = %q, want %q", got, want)
	}
	s := small()
	for i := range s.file.Cells {
		if cell := &s.file.Cells[i]; cell.Variant == "b" && cell.Params["x"] == 2 {
			cell.Invalid = "no subflow"
		}
	}
	if got, want := headline(s), "App p50: a 1.75\u00a0ms, b 4.75\u00a0ms, mean over the 1 of 2 points that all have"; got != want {
		t.Errorf("without the second point of b: headline = %q, want %q", got, want)
	}
	for metric, want := range map[string]string{
		"lost_percent": "Ping lost: highest d 30\u00a0%, lowest a 0\u00a0%", // more may be what was asked for
		"p50_ms":       "Ping p50: best a 0\u00a0ms, worst d 30\u00a0ms",
	} {
		for _, differ := range []bool{true, false} {
			f := &result.File{Experiment: result.Experiment{Plots: []result.Plot{{Kind: "bars", Show: []string{"ping." + metric}}}}}
			for i, variant := range []string{"a", "b", "c", "d"} {
				v := float64(10 * i)
				if !differ {
					v, want = 5, regexp.MustCompile(": .*(\u00a0.*)$").ReplaceAllString(want, ": 4 variants each 5$1")
				}
				f.Cells = append(f.Cells, result.Cell{Variant: variant, Seed: 1, Metrics: map[string]map[string]float64{"ping": {metric: v}}})
			}
			if got := headline(newSource(f, &colours{})); got != want {
				t.Errorf("headline = %q, want %q", got, want)
			}
		}
	}
}
