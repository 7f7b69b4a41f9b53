package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plait.dev/plait/lab"
	"plait.dev/plait/lab/result"
)

// TestOutputsBeforeAnythingRuns: what would keep results from being written, or continued, is said before the first machine starts.
func TestOutputsBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(results, "tcp-single.json"), []byte(`{"format": 1, "exp`), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(filepath.Join(results, "tcp-single.json"), link); err != nil {
		t.Fatal(err)
	}
	one, two := []string{"tcp-single"}, []string{"demo-exits", "tcp-single"}
	own, bare := filepath.Join(dir, "own.yaml"), filepath.Join(dir, "own")
	for _, file := range []string{own, bare} {
		if err := os.WriteFile(file, []byte("name: own\ngroup: test\nquestion: Is it still there?\nlinks: {l: {ends: [a, b]}}\nduration_s: 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		flags runFlags
		names []string
		want  string // none: it can run
	}{
		{runFlags{json: results}, one, "is a directory, and there is one experiment"},
		{runFlags{json: dir + "/new/"}, one, "is a directory, and there is one experiment"},
		{runFlags{report: results}, one, "give the file the report goes to"},
		{runFlags{json: os.DevNull}, one, "--json /dev/null is a device or pipe, whose place the file would take"},
		{runFlags{report: os.DevNull}, one, "--report /dev/null is a device or pipe"},
		{runFlags{json: "-"}, one, "--json - is not standard output here"},
		{runFlags{report: "-"}, one, "--report - is not standard output here"},
		{runFlags{json: "-"}, two, "--json - is not standard output here"},
		{runFlags{json: results, resume: true}, two, "read result " + filepath.Join(results, "tcp-single.json")},
		{runFlags{resume: true}, one, "give both"},
		{runFlags{json: dir + "/r", report: results + "/../r"}, one, "--json " + dir + "/r and --report " + results + "/../r are one file"},
		{runFlags{json: dir + "/r", console: dir + "/r"}, one, "are one file"},
		{runFlags{json: link, report: filepath.Join(results, "tcp-single.json")}, one, "are one file"},
		{runFlags{json: results, report: results + "/demo-exits.json"}, two, "are one file"},
		{runFlags{json: own}, []string{own}, "experiment " + own + " and --json " + own + " are one file"},
		{runFlags{console: own}, []string{own}, "are one file"},
		{runFlags{json: bare}, []string{bare}, "experiment " + bare + " and --json " + bare + " are one file"},
		{runFlags{json: dir + "/own.json"}, []string{own}, ""},
		{runFlags{json: results, report: dir + "/r", console: dir + "/console"}, two, ""},
		{runFlags{json: results}, two, ""},
		{runFlags{json: filepath.Join(dir, "new", "result.json"), resume: true}, one, ""},
	} {
		test.flags.captures = "."
		_, err := test.flags.prepare(test.names)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v, %v: %v, want %q", test.flags, test.names, err, test.want)
		}
	}
}

// TestEmptyFlags: a flag whose value is an unset variable does not mean that a result is thrown away, or an image made anew.
func TestEmptyFlags(t *testing.T) {
	for _, args := range [][]string{{"run", "tcp-single", "--json", ""}, {"run", "tcp-single", "--report="}, {"run", "tcp-single", "--captures="}, {"run", "tcp-single", "--console="},
		{"run", "tcp-single", "--traces="}, {"run", "tcp-single", "--group="}, {"image", "--import="}, {"image", "--export="}, {"report", "a.json", "--out="}, {"show", "tcp-single", "--traces="}} {
		root := newRoot(io.Discard)
		root.SetArgs(append([]string{"lab"}, args...))
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nothing is to run
		if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestTracesAreWrongOnce: what is wrong with --traces is told once, however many experiments were to run.
func TestTracesAreWrongOnce(t *testing.T) {
	f := runFlags{captures: "."}
	f.load.Traces = filepath.Join(t.TempDir(), "nowhere")
	if _, err := f.prepare([]string{"tcp-single", "demo-exits"}); err == nil || strings.Count(err.Error(), "find recordings for --traces") != 1 {
		t.Errorf("%v, want one mistake", err)
	}
}

// TestSetNamesTheExperiment: of several experiments, the one that has not got what --set replaces is named.
func TestSetNamesTheExperiment(t *testing.T) {
	f := runFlags{captures: "."}
	f.load.Set = []string{"rate=5"}
	if _, err := f.prepare([]string{"tcp-single", "demo-exits"}); err == nil || err.Error() != "demo-exits: --set rate=5: there is no rate" {
		t.Errorf("%v", err)
	}
	if _, err := f.prepare([]string{"demo-exits"}); err == nil || err.Error() != "--set rate=5: there is no rate" {
		t.Errorf("%v", err)
	}
}

// TestCapturesBeforeAnythingRuns: that captures cannot be written to the current directory, the default, is no reason to lose a
// cell that has run; without captures nothing is written there.
func TestCapturesBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	f := runFlags{captures: "."}
	if _, err := f.prepare([]string{"tcp-single"}); err != nil {
		t.Error(err)
	}
	f.load.Set = []string{"measure.pcap=[server/far]"}
	if _, err := f.prepare([]string{"tcp-single"}); err == nil || !strings.Contains(err.Error(), "results could not be written") {
		t.Errorf("%v, want that results could not be written", err)
	}
}

// TestNetworkBeforeAnythingRuns: a network that cannot be built is bad input whichever cell has it, not the end of a long run.
func TestNetworkBeforeAnythingRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	text := `name: x
group: mine
question: Is it told in time?
params: {address: 10.1.0.9/24}
matrix: {address: [10.1.0.9/24, 10.2.0.9/24]}
links: {a: {ends: [server, client]}}
timeline:
  - {at_s: 1, node: client, run: "true", when: address == ""}
  - {at_s: 1, node: client, on: a, address: $address}
apps: {f: {type: download, from: server, to: client, bytes: 9}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := runFlags{captures: "."}
	_, err := f.prepare([]string{file})
	if want := file + ":9:36: timeline.1.address: 10.2.0.9/24 is not in the link's prefix"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestInterruptedKeepsTheOldFile: what ends before its first cell has nothing to put in an older result's place.
func TestInterruptedKeepsTheOldFile(t *testing.T) {
	f := runFlags{json: filepath.Join(t.TempDir(), "r.json")}
	file := func(cells int) *result.File {
		return &result.File{Format: result.Format, Experiment: result.Experiment{Name: "x"}, Cells: make([]result.Cell, cells)}
	}
	for _, step := range []struct {
		cells int
		ended error
		want  int
	}{{3, nil, 3}, {0, errInterrupted, 3}, {1, errInterrupted, 1}, {0, errInterrupted, 1}} {
		if err := f.keep(file(step.cells), step.ended, false); !errors.Is(err, step.ended) {
			t.Fatal(err)
		}
		if r, err := result.Read(f.json); err != nil || len(r.Cells) != step.want {
			t.Errorf("after %d cells, %v: the file has %+v, %v, want %d cells", step.cells, step.ended, r, err, step.want)
		}
	}
}

// TestEndedRunSaysHowToGoOn: who ends a long run is told what goes on with it, if anything can.
func TestEndedRunSaysHowToGoOn(t *testing.T) {
	broken := errors.New("no room")
	for _, test := range []struct {
		json  string
		cells int
		ended error
		want  string
	}{
		{"r.json", 2, errInterrupted, "interrupted; the same command with --resume goes on from r.json"},
		{"r.json", 0, errInterrupted, "interrupted"},
		{"", 2, errInterrupted, "interrupted"},
		{os.DevNull + "/r.json", 2, broken, "no room\nwrite result"},
	} {
		f := runFlags{json: test.json}
		t.Chdir(t.TempDir())
		r := &result.File{Format: result.Format, Experiment: result.Experiment{Name: "x"}, Cells: make([]result.Cell, test.cells)}
		if err := f.keep(r, test.ended, false); err == nil || !strings.HasPrefix(err.Error(), test.want) || !errors.Is(err, test.ended) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestOtherResultIsBadInput: --resume of another experiment's file has run nothing.
func TestOtherResultIsBadInput(t *testing.T) {
	if got := failure(fmt.Errorf("resume x: %w", lab.ErrConditions)); got != lab.ExitInput {
		t.Errorf("exit status %d, want %d", got, lab.ExitInput)
	}
}

// TestReportThatCannotBeWritten: runs that are valid do not end as invalid because their report cannot be written.
func TestReportThatCannotBeWritten(t *testing.T) {
	f := runFlags{report: filepath.Join(os.DevNull, "report.html")}
	var got *exit
	if err := f.conclude(io.Discard, []*result.File{{}}, nil); !errors.As(err, &got) || got.status != lab.ExitInput {
		t.Errorf("%v; want exit status %d", err, lab.ExitInput)
	}
}

// TestOutputThatCannotBeWritten: what a run prints is seen to be written, as all that plait prints is.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	out, f := &output{to: full}, runFlags{report: filepath.Join(t.TempDir(), "report.html")}
	if err := f.conclude(out, []*result.File{{}}, nil); err != nil || out.err == nil {
		t.Errorf("%v; writing: %v", err, out.err)
	}
}

func TestColoured(t *testing.T) {
	for _, c := range []struct {
		terminal      bool
		noColor, term string
		want          bool
	}{
		{true, "", "xterm", true},
		{true, "1", "xterm", false},
		{true, "", "dumb", false},
		{false, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := coloured(c.terminal); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPart: who watches several experiments is told which of them runs.
func TestPart(t *testing.T) {
	if got := part(1, 5); got != "2 of 5" {
		t.Errorf("the second of five is %q", got)
	}
	if got := part(0, 1); got != "" {
		t.Errorf("one alone is %q", got)
	}
}

// TestReportDoesNotReplaceItsResult: the page is made of what is in its place.
func TestReportDoesNotReplaceItsResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := result.Write(path, &result.File{Format: result.Format, Experiment: result.Experiment{Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	root := newRoot(io.Discard)
	root.SetArgs([]string{"lab", "report", path, "--out", path})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "whose place the page would take") {
		t.Errorf("%v", err)
	}
	if _, err := result.Read(path); err != nil {
		t.Error(err)
	}
}
