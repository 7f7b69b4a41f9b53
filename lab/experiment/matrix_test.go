package experiment

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plait.dev/plait/lab/result"
)

const matrixText = `
params: {rate: 1, delay: 2, loss: 0, algorithm: reno, queue: 9}
matrix:
  "rate,delay": [[10, 50], {delay: 5, rate: 100}]
  loss: [0, 1]
variants:
  cubic: {algorithm: cubic}
  bbr: {algorithm: bbr, queue: $(rate * 2)}
skip: variant == "bbr" && loss == 1
seeds: 2
links: {a: {ends: [client, server], rate_mbps: $rate, delay_ms: $delay, loss_percent: $loss, queue_packets: $queue}}
apps: {bulk: {type: download, from: server, to: client, bytes: 1000, congestion: $algorithm}}
`

// describeCells is each cell as point variant seed rate/delay/loss/queue/algorithm, taken from what the guest would see.
func describeCells(x *Experiment) []string {
	var list []string
	for _, c := range x.Cells() {
		a := c.Spec.Links["a"].Forward
		list = append(list, fmt.Sprintf("%d %s %d %g/%g/%g/%d/%s", c.Point, c.Variant, c.Seed,
			*a.RateMbps, *a.DelayMs, *a.LossPercent, *a.QueuePackets, c.Spec.Apps["bulk"].Congestion))
	}
	return list
}

func TestCells(t *testing.T) {
	got := describeCells(mustLoad(t, matrixText, Options{}))
	want := []string{
		"0 cubic 1 10/50/0/9/cubic", "0 cubic 2 10/50/0/9/cubic",
		"0 bbr 1 10/50/0/20/bbr", "0 bbr 2 10/50/0/20/bbr",
		"1 cubic 1 10/50/1/9/cubic", "1 cubic 2 10/50/1/9/cubic",
		"2 cubic 1 100/5/0/9/cubic", "2 cubic 2 100/5/0/9/cubic",
		"2 bbr 1 100/5/0/200/bbr", "2 bbr 2 100/5/0/200/bbr",
		"3 cubic 1 100/5/1/9/cubic", "3 cubic 2 100/5/1/9/cubic",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMatrixIsNamed(t *testing.T) {
	if got, want := mustLoad(t, matrixText, Options{}).Describe().Matrix, []string{"rate", "delay", "loss"}; !slices.Equal(got, want) {
		t.Errorf("the matrix is of %v, want %v", got, want)
	}
}

func TestSet(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want []string // the cells of seed 1
	}{
		{[]string{"loss=3"}, []string{"0 cubic 10/50/3/9/cubic", "0 bbr 10/50/3/20/bbr", "1 cubic 100/5/3/9/cubic", "1 bbr 100/5/3/200/bbr"}},
		{[]string{"rate=20", "loss=1"}, []string{"0 cubic 20/50/1/9/cubic", "1 cubic 20/5/1/9/cubic"}},
		{[]string{"delay=7,8", "loss=1", "rate=5"}, []string{"0 cubic 5/7/1/9/cubic", "1 cubic 5/8/1/9/cubic"}},
		{[]string{"algorithm=vegas", "loss=1", "delay=1", "rate=1"}, []string{"0 cubic 1/1/1/9/vegas"}},
		{[]string{"loss=1", "delay=1", "rate=1", "links.a.rate_mbps=33", "links.a.forward.queue_packets=44", "apps.bulk.congestion=htcp"},
			[]string{"0 cubic 33/1/1/44/htcp"}}, // queue and algorithm are used by nothing then, which is no mistake
	} {
		x, err := loadText(t, matrixText, Options{Set: test.set, Seeds: 1})
		if err != nil {
			t.Errorf("%v: %v", test.set, err)
			continue
		}
		var got []string
		for _, cell := range describeCells(x) {
			got = append(got, strings.Replace(cell, " 1 ", " ", 1))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v:\ngot\n%s\nwant\n%s", test.set, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestSetOfVariants: a --set that makes two variants the same is a mistake, for their names say that they differ.
func TestSetOfVariants(t *testing.T) {
	const text = `params: {control: cubic, rate: 1}
variants: {cubic: {control: cubic}, bbr: {control: bbr}, slow: {control: bbr, rate: 2}}
links: {a: {ends: [client, server], rate_mbps: $rate}}
apps: {bulk: {type: download, from: server, to: client, bytes: 9, congestion: $control}}`
	for set, want := range map[string]string{
		"control=reno":               "--set control=reno: variants cubic and bbr would be the same, for control tells them apart; replace the value of one of them, variants.bbr.control",
		"control=reno,bbr":           "variants cubic and bbr would be the same",
		"rate=3":                     "variants bbr and slow would be the same",
		"variants.bbr.control=reno":  "",
		"variants.bbr.control=cubic": "", // the file says so itself then
	} {
		if _, err := loadText(t, text, Options{Set: []string{set}}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}

func TestSetValues(t *testing.T) {
	text := "links: {a: {ends: [client, server]}}\ntimeline: [{at_s: 1, link: a, carrier: down}]" + bulk
	x := mustLoad(t, text, Options{Set: []string{
		"sysctl.net.ipv4.tcp_sack=0", "timeline.0.at_s=2.5", "nodes={client: {run: ['true', 'date']}}", "kernel=6.1", "measure.pcap=[]",
	}})
	spec := x.Cells()[0].Spec
	if spec.Sysctl["net.ipv4.tcp_sack"] != 0.0 || spec.Timeline[0].AtS != 2.5 || len(spec.Nodes["client"].Run) != 2 || spec.Kernel != "6.1" {
		t.Errorf("got %+v", spec)
	}
	for set, want := range map[string]string{
		"loss":                "write key=value",
		"los=1":               "there is no los",
		"link.a.rate_mbps=1":  "there is no link; did you mean links?",
		"links.b.rate_mbps=1": "there is no links.b",
		"links.a.rate_mbp=1":  "did you mean rate_mbps?",
		"timeline.1.at_s=1":   "there is no 1",
		"links.a.rate_mbps=0": "--set links.a.rate_mbps=0: links.a.rate_mbps: 0 is below the minimum 0.008",
		"apps.bulk.bytes=":    "write key=value",
		"seeds={a":            "the value is not YAML",
	} {
		if _, err := loadText(t, text, Options{Set: []string{set}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}

// TestTraces checks that $traces stands for the recordings of a directory and that each is read.
func TestTraces(t *testing.T) {
	x := mustLoad(t, `
matrix: {recording: $traces}
links: {a: {ends: [client, server], forward: {trace: {file: $recording}}, backward: {trace: {file: ../traces/short.up}}}}
`+bulk, Options{Traces: "testdata/traces"})
	cells := x.Cells()
	if len(cells) != 2 || cells[0].Params["recording"] != "short.down.gz" || cells[1].Params["recording"] != "short.up" {
		t.Fatalf("cells %v", cells)
	}
	for i, want := range [][]uint32{{2, 4, 8}, {1, 5, 9}} {
		a := cells[i].Spec.Links["a"]
		if !slices.Equal(a.Forward.Trace.OpportunitiesMs, want) || !slices.Equal(a.Backward.Trace.OpportunitiesMs, []uint32{1, 5, 9}) {
			t.Errorf("cell %d: %v, %v", i, a.Forward.Trace, a.Backward.Trace)
		}
	}
}

// TestRecordings: a result names each recording that is replayed by its digest, and who runs it hears what in the directory is none.
func TestRecordings(t *testing.T) {
	x := mustLoad(t, `
matrix: {recording: $traces}
links: {a: {ends: [client, server], forward: {trace: {file: $recording}}, backward: {trace: {file: ../traces/short.up}}}}
`+bulk, Options{Traces: "testdata/traces", Set: []string{"recording=short.down.gz"}})
	var want []result.Recording
	for _, name := range []string{"../traces/short.up", "short.down.gz"} {
		content, err := os.ReadFile("testdata/traces/" + filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, result.Recording{File: name, SHA256: fmt.Sprintf("%x", sha256.Sum256(content))})
	}
	if got := x.Recordings(); !slices.Equal(got, want) {
		t.Errorf("recordings %v, want %v", got, want)
	}
	if got := x.NoRecordings(); !slices.Equal(got, []string{"README.md"}) {
		t.Errorf("no recordings: %v", got)
	}
}

// TestNoTracesDirectory: plait has a recording of that name too, and it is not the one that was meant; and who names a directory wrongly is told so of an experiment that
// replays nothing, too.
func TestNoTracesDirectory(t *testing.T) {
	for _, c := range []struct{ link, dir, want string }{
		{"trace: {file: steps.down}", "nowhere", "find recordings for --traces: stat nowhere"},
		{"delay_ms: 1", "nowhere", "find recordings for --traces: stat nowhere"},
		{"delay_ms: 1", "matrix_test.go", "find recordings for --traces: matrix_test.go is not a directory"},
	} {
		_, err := loadText(t, "links: {a: {ends: [client, server], "+c.link+"}}"+bulk, Options{Traces: c.dir})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with --traces %s: %v, want %s", c.link, c.dir, err, c.want)
		}
	}
}

// TestTooManyLines: more than the guest has memory for would end its packet emulator.
func TestTooManyLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "long.down")
	if err := os.WriteFile(file, []byte(strings.Repeat("1\n", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	both := "links: {"
	for i := range 40 { // links of two directions, and so of 200000 lines
		both += fmt.Sprintf("a%d: {ends: [client, server], trace: {file: %s}}, ", i, file)
	}
	both += "b: {ends: [client, server], forward: {}}}" + bulk
	if _, err := loadText(t, both, Options{}); err != nil {
		t.Error(err)
	}
	_, err := loadText(t, strings.Replace(both, "forward: {}", "forward: {then: {trace: {file: "+file+"}}}", 1), Options{})
	if want := "test.yaml:4:1: links: the recordings have 8100000 lines in all, the guest has memory for 8000000; cut them"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTooManyCells(t *testing.T) {
	hundred := "[0"
	for i := 1; i < 100; i++ {
		hundred += fmt.Sprintf(", %d", i)
	}
	hundred += "]"
	_, err := loadText(t, "matrix: {x: "+hundred+", y: "+hundred+", z: [1, 2]}\nsysctl: {a: $(x + y + z)}\nlinks: {a: {ends: [client, server]}}"+bulk, Options{})
	if err == nil || !strings.Contains(err.Error(), "more than 10000 cells") {
		t.Error(err)
	}
}

// TestTwice: two points with the same parameters would be one in a result, with each seed twice.
func TestTwice(t *testing.T) {
	const want = "the same value is in the list twice"
	if _, err := loadText(t, strings.Replace(matrixText, "[0, 1]", "[0, 1, 0.0]", 1), Options{}); err == nil || !strings.Contains(err.Error(), "test.yaml:8:16: matrix.loss: "+want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := loadText(t, strings.Replace(matrixText, "[0, 1]", "[5, $(rate / 2)]", 1), Options{}); err == nil || err.Error() != "test.yaml:8:13: matrix.loss: "+want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := loadText(t, matrixText, Options{Set: []string{"loss=1,1"}}); err == nil || err.Error() != "--set loss=1,1: matrix.loss: "+want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestPinned: a variant has no value of its own for a parameter of the matrix, unless --set replaces both.
func TestPinned(t *testing.T) {
	text := strings.Replace(matrixText, "{algorithm: cubic}", "{algorithm: cubic, loss: 0}", 1)
	_, err := loadText(t, text, Options{})
	if want := `variants.cubic.loss: loss is in the matrix, which has a value for every point; where it is used write $(variant == "cubic" ? ... : loss) instead`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := loadText(t, text, Options{Set: []string{"loss=0,1"}}); err != nil {
		t.Error(err)
	}
}

// TestValueOfAVariant: at a point of the matrix its parameters have the same values in all variants, however these are written.
func TestValueOfAVariant(t *testing.T) {
	const text = `matrix:
  rate: ['$(variant == "one" ? 1 : 2)', '$(variant == "one" ? 2 : 1)']
  loss: [0, $some]
variants: {one: {some: 1}, two: {some: %}}
links: {a: {ends: [client, server], rate_mbps: $rate, loss_percent: $loss}}` + bulk
	const want = `test.yaml:5:10: matrix.rate: rate is in the matrix, which has a value for every point; where it is used write $(variant == "two" ? ... : rate) instead`
	refuses(t, strings.Replace(text, "%", "1", 1), want)
	refuses(t, strings.Replace(text, "%", "3", 1), "test.yaml:6:13: matrix.loss: loss is in the matrix")
	accepts(t, strings.NewReplacer("'$(variant == \"one\" ? 1 : 2)'", "7", "'$(variant == \"one\" ? 2 : 1)'", "8", "%", "1.0").Replace(text))
}
