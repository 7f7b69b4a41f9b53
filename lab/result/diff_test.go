package result

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDiffOfEqualFilesIsEmpty(t *testing.T) {
	r := Diff(sample(), sample())
	if len(r.Provenance)+len(r.Cells)+len(r.Bounds) != 0 {
		t.Errorf("differences between equal files: %+v", r)
	}
	if len(r.Metrics) != 8 { // 2 points x 2 variants x 2 metrics
		t.Errorf("%d metrics compared, want 8", len(r.Metrics))
	}
	for _, m := range r.Metrics {
		if m.Verdict != Same {
			t.Errorf("%+v", m)
		}
	}
}

func TestVerdict(t *testing.T) {
	// Standard error of the difference: sqrt(1/4 + 1/4) = 0.7071, with 6 degrees of freedom, so the limit is 2.45 times that, 1.7324.
	four := func(mean float64) Stat { return Stat{N: 4, Mean: mean, SD: 1} }
	for _, test := range []struct {
		a, b Stat
		want string
	}{
		{four(10), four(11.73), Within},
		{four(10), four(11.74), Changed},
		{four(10), four(8.26), Changed},
		{four(10), four(10), Same},
		{Stat{N: 3, Mean: 10}, Stat{N: 3, Mean: 10.001}, Changed}, // no spread at all: any difference counts
		{Stat{N: 1, Mean: 10}, Stat{N: 1, Mean: 10.001}, NoSpread},
		{Stat{N: 1, Mean: 10}, Stat{N: 1, Mean: 10 + 1e-9}, Same},
		{Stat{N: 1, Mean: 10}, four(12), NoSpread},
		{Stat{N: 1}, Stat{N: 1}, Same},
	} {
		if got := verdict(test.a, test.b); got != test.want {
			t.Errorf("verdict(%+v, %+v) = %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

func TestDiffFindsWhatChanged(t *testing.T) {
	a, b := sample(), sample()
	b.Provenance.Kernel = "6.1.0"
	b.Provenance.Recordings = []Recording{{"lte.down", "other"}, {"more.down", "ef56"}}
	b.Bounds[0].OK = false
	for i := range b.Cells {
		b.Cells[i].Params["queue"] = "shallow"
		if b.Cells[i].Variant == "tcp" {
			b.Cells[i].Metrics["bulk"]["retransmissions"] = 9
		}
	}
	b.Cells[0].Invalid = "subflow not joined"
	b.Cells = b.Cells[:6] // rate 20, tcp is gone
	r := Diff(a, b)
	if want := []Change{{"kernel", "6.12.107", "6.1.0"}, {"recording lte.down", "cd34", "other"}, {"parameter queue of mptcp", "deep", "shallow"}, {"parameter queue of tcp", "deep", "shallow"}}; !reflect.DeepEqual(r.Provenance, want) {
		t.Errorf("provenance = %v, want %v", r.Provenance, want)
	}
	if want := []Change{
		{"rate_mbps 10, mptcp", "valid", "1 of 2 seeds valid; seed 1 is invalid: subflow not joined"}, {"rate_mbps 20, tcp", "valid", "absent"},
	}; !reflect.DeepEqual(r.Cells, want) {
		t.Errorf("cells = %v, want %v", r.Cells, want)
	}
	if want := []Change{{"mptcp.goodput_mbps >= 0.9 * 2 * rate_mbps at rate_mbps 10", "holds", "fails"}}; !reflect.DeepEqual(r.Bounds, want) {
		t.Errorf("bounds = %v, want %v", r.Bounds, want)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"  rate_mbps 10, mptcp, bulk.goodput_mbps   20.38 ±0.18 (n=2)  20.5        +0.6 %  differs, no spread known\n",
		"  rate_mbps 10, tcp, bulk.retransmissions  3 ±0 (n=2)         9 ±0 (n=2)  +200.0 %\n",
		"6 metrics compared: 1 changed beyond the spread of the seeds, 1 differ with no spread known, 0 within the spread, 4 the same\n",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the text has no line %q:\n%s", line, &text)
		}
	}
}

func TestDiffOfARunWithAnotherParameterComparesTheSamePoints(t *testing.T) {
	a, b := sample(), sample()
	b.Cells = b.Cells[4:] // --set rate_mbps=20: the parameter is constant in b
	r := Diff(a, b)
	if len(r.Metrics) != 4 {
		t.Fatalf("%d metrics compared, want those of rate 20", len(r.Metrics))
	}
	for _, m := range r.Metrics {
		if m.Point != "rate_mbps 20" || m.Verdict != Same {
			t.Errorf("%+v", m)
		}
	}
}

func TestDiffTellsWhatOnlyOneFileHas(t *testing.T) {
	a, b := sample(), sample()
	for i := range b.Cells {
		b.Cells[i].Metrics["bulk"]["extra"] = 1
		delete(b.Cells[i].Metrics["bulk"], "retransmissions")
	}
	r := Diff(a, b)
	if len(r.OnlyOne) != 8 || len(r.Metrics) != 4 {
		t.Fatalf("%d in one file, %d compared: %v", len(r.OnlyOne), len(r.Metrics), r.OnlyOne)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "metrics in one file only") {
		t.Errorf("%v\n%s", err, &text)
	}
	for i := range b.Cells {
		b.Cells[i].Variant += "2"
	}
	if err := Diff(a, b).WriteText(&text); err == nil || !strings.Contains(err.Error(), "no valid cell in common") {
		t.Errorf("files with no cell in common: %v", err)
	}
}

// Of values that differ by chance alone one comparison in twenty says that they have changed, however few seeds there are.
func TestVerdictByChance(t *testing.T) {
	const times = 4000
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 5, 20} {
		draw := func() Stat {
			values := make([]float64, n)
			for i := range values {
				values[i] = 100 + r.NormFloat64()
			}
			return Summarise(values)
		}
		changed := 0
		for range times {
			if verdict(draw(), draw()) == Changed {
				changed++
			}
		}
		if share := float64(changed) / times; share < 0.01 || share > 0.06 {
			t.Errorf("%d seeds: %.3f of the comparisons find a change", n, share)
		}
	}
}

// TestDiffTellsSeedsFromMeans: the verdict on every seed does not stand for that on the means.
func TestDiffTellsSeedsFromMeans(t *testing.T) {
	file := func(mean bool) *File {
		return &File{Bounds: []Bound{{Expression: "a.x > 1", OK: mean}, {Expression: "a.x > 1", Seed: 2}}}
	}
	want := []Change{{"a.x > 1", "holds", "fails"}}
	if got := Diff(file(true), file(false)).Bounds; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDiffTellsIncomplete: a mean of the seeds that had run until somebody ended them is not compared without a word.
func TestDiffTellsIncomplete(t *testing.T) {
	b := sample()
	b.Cells, b.Bounds, b.Incomplete = b.Cells[:7], nil, "7 of 8"
	r := Diff(sample(), b)
	if want := []Change{{"incomplete", "no", "7 of 8"}}; !slices.Equal(r.Provenance, want) {
		t.Errorf("provenance = %v, want %v", r.Provenance, want)
	}
	if want := []Change{{"rate_mbps 20, tcp", "valid", "1 of 2 seeds valid"}}; !slices.Equal(r.Cells, want) {
		t.Errorf("cells = %v, want %v", r.Cells, want)
	}
	more := sample() // of as many seeds as were asked for
	more.Provenance.Seeds = []int{1}
	more.Cells = slices.DeleteFunc(more.Cells, func(c Cell) bool { return c.Seed > 1 })
	if r := Diff(sample(), more); len(r.Cells) > 0 {
		t.Errorf("cells of complete files: %v", r.Cells)
	}
}
