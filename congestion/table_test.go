package congestion

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"plait.dev/plait/signals"
)

const small = `# two RTTs, one entry, two algorithms
rtt_ms,bottleneck_kbps,algorithm,latency_s
200,400,cubic,0.5
100,400,reno,0.25

100,400,cubic,0
200,400,reno,1
`

func TestParseGrid(t *testing.T) {
	g, err := parseGrid("a.csv", strings.NewReader(small), bottleneckColumn, latencyColumn)
	if err != nil {
		t.Fatal(err)
	}
	want := map[cell]float64{
		{100, 400, signals.Reno}: 0.25, {100, 400, signals.Cubic}: 0,
		{200, 400, signals.Reno}: 1, {200, 400, signals.Cubic}: 0.5,
	}
	if !slices.Equal(g.rttsMs, []float64{100, 200}) || !slices.Equal(g.entries, []float64{400}) ||
		!slices.Equal(g.algorithms, []signals.Algorithm{signals.Reno, signals.Cubic}) || !maps.Equal(g.cells, want) {
		t.Errorf("got %+v", g)
	}
}

func TestParseGridMistakes(t *testing.T) {
	const headings = "rtt_ms,bottleneck_kbps,algorithm,latency_s\n"
	for _, c := range []struct{ text, want string }{
		{"", `a.csv:1: the headings are not ["rtt_ms" "bottleneck_kbps" "algorithm" "latency_s"]`},
		{"# nothing\nrtt_ms,bottleneck_kbps,algorithm,latency_ms\n", `a.csv:2: the headings are not ["rtt_ms" "bottleneck_kbps" "algorithm" "latency_s"]`},
		{headings, "a.csv:1: the table is empty"},
		{headings + "100,400,reno\n", "a.csv:2: wrong number of fields"},
		{headings + "100,400,reno,1\n100,4\"0,cubic,1\n", `a.csv:3: bare " in non-quoted-field`},
		{headings + "0x,400,reno,1\n", `a.csv:2: rtt_ms: "0x" is not a number from 0 to 10000`},
		{headings + "100,-1,reno,1\n", `a.csv:2: bottleneck_kbps: "-1" is not a number from 0 to 1e+09`},
		{headings + "# one\n100,400,reno,NaN\n", `a.csv:3: latency_s: "NaN" is not a number from 0 to 3600`},
		{headings + "100,400,reno,Inf\n", `a.csv:2: latency_s: "Inf" is not a number from 0 to 3600`},
		{headings + "100,400,tahoe,1\n", `a.csv:2: unknown congestion control "tahoe"; there are reno, cubic, bic, highspeed, htcp, hybla, scalable, vegas, westwood, bbr, burst`},
		{headings + "100,400,reno,1\n100,4e2,reno,1\n", "a.csv:3: rtt_ms 100, bottleneck_kbps 400, reno: a second value"},
		{headings + "100,400,reno,1\n200,400,cubic,1\n", "a.csv:3: until here no value for rtt_ms 100, bottleneck_kbps 400, cubic"},
	} {
		_, err := parseGrid("a.csv", strings.NewReader(c.text), bottleneckColumn, latencyColumn)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestReadTables(t *testing.T) {
	good := fstest.MapFS{
		"nonburst_latency.csv": {Data: []byte("rtt_ms,nonburst_loss_rate,algorithm,latency_s\n100,0,reno,1\n")},
		"bottleneck.csv":       {Data: []byte("rtt_ms,bottleneck_kbps,algorithm,burst_loss_rate_percent\n100,400,reno,1\n")},
		"burst_latency.csv":    {Data: []byte("rtt_ms,bottleneck_kbps,algorithm,latency_s\n100,400,reno,1\n")},
	}
	if _, err := readTables(good); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ file, text, want string }{
		{"nonburst_latency.csv", "rtt_ms,nonburst_loss_rate,algorithm,latency_s\n100,2,reno,1\n",
			`nonburst_latency.csv:2: nonburst_loss_rate: "2" is not a number from 0 to 1`},
		{"nonburst_latency.csv", "rtt_ms,nonburst_loss_rate,algorithm,latency_s\n100,0,cubic,1\n",
			"bottleneck.csv: its RTTs or algorithms are not those of the two other tables"},
		{"burst_latency.csv", "rtt_ms,bottleneck_kbps,algorithm,latency_s\n200,400,reno,1\n",
			"bottleneck.csv: its RTTs or algorithms are not those of the two other tables"},
		{"burst_latency.csv", "rtt_ms,bottleneck_kbps,algorithm,latency_s\n100,401,reno,1\n",
			"bottleneck.csv: its bottlenecks are not those of burst_latency.csv"},
		{"bottleneck.csv", "", `bottleneck.csv:1: the headings are not ["rtt_ms" "bottleneck_kbps" "algorithm" "burst_loss_rate_percent"]`},
	} {
		set := maps.Clone(good)
		set[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		if _, err := readTables(set); err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.file, err, c.want)
		}
		delete(set, c.file)
		if _, err := readTables(set); err == nil || err.Error() != "open "+c.file+": file does not exist" {
			t.Errorf("without %s: %v", c.file, err)
		}
	}
}

func TestNearest(t *testing.T) {
	rtts := []float64{100, 200, 300}
	for _, c := range []struct{ x, want float64 }{
		{0, 100}, {125, 100}, {150, 100}, {150.001, 200}, {250, 200}, {251, 300}, {2000, 300},
	} {
		if got := nearest(rtts, c.x); got != c.want {
			t.Errorf("nearest to %g is %g, want %g", c.x, got, c.want)
		}
	}
}

// embeddedSet reads an embedded set.
func embeddedSet(t *testing.T, name string) *tables {
	t.Helper()
	dir, err := fs.Sub(embedded, "table/"+name)
	if err != nil {
		t.Fatal(err)
	}
	set, err := readTables(dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The axes of figures 4-9 to 4-17, and of each of the nine printed tables the first and the last number.
func TestThesisTables(t *testing.T) {
	set := embeddedSet(t, "thesis-2016")
	losses := []float64{1e-5, 2e-5, 4e-5, 6e-5, 1e-4, 2e-4, 4e-4, 6e-4, 1e-3, 2e-3, 4e-3, 6e-3, 0.01, 0.02, 0.05}
	kbps := []float64{400, 500, 600, 700, 800, 1000, 1200, 1600, 2200, 3000, 4000, 5000, 6400, 8000, 10000}
	for name, g := range map[string]*grid{"nonburst": set.nonburst, "bottleneck": set.bottleneck, "burst": set.burst} {
		entries := kbps
		if g == set.nonburst {
			entries = losses
		}
		if !slices.Equal(g.rttsMs, []float64{100, 200, 300}) || !slices.Equal(g.entries, entries) || len(g.cells) != 3*15*9 {
			t.Errorf("%s: RTTs %v, entries %v, %d cells", name, g.rttsMs, g.entries, len(g.cells))
		}
		nine := []signals.Algorithm{signals.Reno, signals.Cubic, signals.BIC, signals.HighSpeed, signals.HTCP, signals.Hybla,
			signals.Scalable, signals.Vegas, signals.Westwood}
		if !slices.Equal(g.algorithms, nine) {
			t.Errorf("%s: algorithms %v", name, g.algorithms)
		}
	}
	for _, c := range []struct {
		figure         string
		g              *grid
		rttMs, x, y    float64
		firstBIC, last float64
	}{
		{"4-9", set.nonburst, 100, 1e-5, 0.05, 0.10923, 0.980929},
		{"4-10", set.nonburst, 200, 1e-5, 0.05, 0.164619, 3.115075},
		{"4-11", set.nonburst, 300, 1e-5, 0.05, 0.218637, 91.72299},
		{"4-12", set.bottleneck, 100, 400, 10000, 0.00045, 1.97923},
		{"4-13", set.bottleneck, 200, 400, 10000, 0.00045, 1.75648},
		{"4-14", set.bottleneck, 300, 400, 10000, 0.00045, 1.36498},
		{"4-15", set.burst, 100, 400, 10000, 0.698047, 0.108709},
		{"4-16", set.burst, 200, 400, 10000, 1.333848, 0.164103},
		{"4-17", set.burst, 300, 400, 10000, 1.862158, 0.218942},
	} {
		if first, last := c.g.at(c.rttMs, c.x, signals.BIC), c.g.at(c.rttMs, c.y, signals.Westwood); first != c.firstBIC || last != c.last {
			t.Errorf("figure %s: first %v, last %v, want %v, %v", c.figure, first, last, c.firstBIC, c.last)
		}
	}
}

// Every set that is compiled in is a policy that can be had, and of the same nine candidates.
func TestEmbeddedSets(t *testing.T) {
	for _, name := range tableSets() {
		if set := embeddedSet(t, name); len(set.nonburst.algorithms) != 9 {
			t.Errorf("%s: algorithms %v", name, set.nonburst.algorithms)
		}
		if _, err := New("rtcp:" + name); err != nil {
			t.Error(err)
		}
	}
}

// What parses has a value everywhere, so a choice from it cannot miss.
func FuzzParseGrid(f *testing.F) {
	f.Add(small)
	f.Add("rtt_ms,bottleneck_kbps,algorithm,latency_s\n1,2,reno,3\n1,2,reno,3\n")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := parseGrid("a.csv", strings.NewReader(text), bottleneckColumn, latencyColumn)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "a.csv:") {
				t.Errorf("%v: has no file name", err)
			}
			return
		}
		if want := len(g.rttsMs) * len(g.entries) * len(g.algorithms); want == 0 || len(g.cells) != want {
			t.Errorf("%d cells, want %d", len(g.cells), want)
		}
		if x := nearest(g.entries, 1000); !slices.Contains(g.entries, x) {
			t.Errorf("%v is not an entry of %v", x, g.entries)
		}
	})
}
