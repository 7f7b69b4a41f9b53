package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"plait.dev/plait/lab/result"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

// golden compares with a file in testdata; go test ./lab/report -update writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what it was; look at the difference and run go test ./lab/report -update if it is meant:\n%s", path, got)
	}
}

// wellFormed fails the test if text is not XML.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
}

// small is a file with little of everything: two variants at two points, two seeds, a mark, a bound that fails.
func small() source {
	f := &result.File{
		Bounds: []result.Bound{{Expression: "b.app.p50_ms <= 5", Params: map[string]any{"x": 2}, Left: 7, Operator: "<=", Right: 5}},
		Paper:  []result.Published{{Metric: "a.app.p50_ms", Params: map[string]any{"x": 1}, Published: 4, Ours: 2}},
	}
	for x := 1; x <= 2; x++ {
		for i, variant := range []string{"a", "b"} {
			for seed := 1; seed <= 2; seed++ {
				level := float64(x + 3*i)
				shift := float64(seed) / 2
				f.Cells = append(f.Cells, result.Cell{Params: map[string]any{"x": x}, Variant: variant, Seed: seed, VirtualS: 4,
					Metrics: map[string]map[string]float64{"app": {"p50_ms": level + shift}},
					Samples: []result.Samples{{Name: "app.delay_ms", Unit: "ms", Values: []float64{level, level + 1, level + 4}}},
					Series:  []result.Series{{Name: "app.goodput_mbps", Unit: "Mbit/s", StartS: 1, StepS: 1, Values: []float64{level, level + shift, level, 0}}},
					Marks:   []result.Mark{{AtS: 2, Text: "a <fails>"}}})
			}
		}
	}
	return newSource(f, &colours{})
}

func TestPlots(t *testing.T) {
	for _, plot := range []result.Plot{
		{Kind: "series", Show: []string{"app.goodput_mbps"}},
		{Kind: "cdf", Show: []string{"app.delay_ms"}},
		{Kind: "bars", Show: []string{"app.p50_ms"}, X: "x"},
		{Kind: "box", Show: []string{"app.delay_ms"}},
		{Kind: "heat", Show: []string{"app.p50_ms"}, X: "x"},
	} {
		fig := draw(small(), plot)
		if fig == nil {
			t.Fatalf("%s: nothing drawn", plot.Kind)
		}
		svg := fig.SVG()
		wellFormed(t, svg)
		wellFormed(t, []byte("<div>"+string(fig.HTML())+"</div>"))
		golden(t, plot.Kind+".svg", svg)
		golden(t, plot.Kind+".csv", fig.CSV())
	}
}

func TestPlotOfWhatWasNotMeasured(t *testing.T) {
	for _, kind := range []string{"series", "cdf", "bars", "box", "heat"} {
		if fig := draw(small(), result.Plot{Kind: kind, Show: []string{"other.*"}}); fig != nil {
			t.Errorf("%s drew %+v from nothing", kind, fig)
		}
	}
}
