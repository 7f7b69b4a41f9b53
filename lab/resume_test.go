package lab

import (
	"encoding/json"
	"strings"
	"testing"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// interrupted is a run of which nothing is done yet, under conditions that need no machine.
func interrupted(t *testing.T, set ...string) *run {
	t.Helper()
	set = append(set, "links.path.rate_mbps=null", "links.path.trace={file: steps.down}")
	e, err := experiment.Load("testdata/interrupt.yaml", experiment.Options{Seeds: 3, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{lab: &Lab{}, exp: e, cells: e.Cells(), bases: map[string]*base{e.Cells()[0].Spec.Kernel: {Digest: "image", Kernel: "6.12.1"}}}
	r.results = make([]*result.Cell, len(r.cells))
	return r
}

// written is the file after two of three cells, one of them invalid, as it is read back.
func written(t *testing.T) *result.File {
	t.Helper()
	r := interrupted(t)
	for i := range 2 {
		c := r.cells[i+1]
		r.results[i+1] = &result.Cell{Params: c.Params, Variant: c.Variant, Seed: c.Seed, VirtualS: float64(i + 1)}
	}
	r.results[2].Invalid = "an application failed"
	f, err := r.file()
	if err != nil {
		t.Fatal(err)
	}
	text, err := result.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	f = new(result.File)
	if err := json.Unmarshal(text, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// The valid cell is taken over in its place, also from a run that was asked for less; the invalid one and the one that is not there are to run.
func TestResume(t *testing.T) {
	r := interrupted(t)
	f := written(t)
	f.Provenance.Command = "plait lab run interrupt --seeds 2"
	if err := r.resume(f); err != nil {
		t.Fatal(err)
	}
	if r.results[0] != nil || r.results[1] == nil || r.results[1].VirtualS != 1 || r.results[2] != nil {
		t.Errorf("taken over: %+v", r.results)
	}
}

func TestResumeOtherConditions(t *testing.T) {
	for _, c := range []struct {
		change func(*result.File)
		want   string
	}{
		{func(f *result.File) { f.Experiment.Source += "\n" }, "another experiment file or --set,"},
		{func(f *result.File) { f.Provenance.Image = "another" }, "another guest image or build of plait,"},
		{func(f *result.File) { f.Provenance.Recordings[0].SHA256 = "another" }, "another recording steps.down,"},
		{func(f *result.File) { f.Cells[0].Seed = 9 }, "does not ask for (1),"},
	} {
		f := written(t)
		c.change(f)
		if err := interrupted(t).resume(f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// What --set replaces in the file, and no parameter tells, are other conditions.
func TestResumeOtherValue(t *testing.T) {
	err := interrupted(t, "links.path.delay_ms=20").resume(written(t))
	if err == nil || !strings.Contains(err.Error(), "another experiment file or --set,") {
		t.Errorf("got %v", err)
	}
}
