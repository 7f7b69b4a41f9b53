package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// A cell that finishes a minute after the last save saves all that have; one that finishes sooner, and the last one, do not.
func TestStoreSaves(t *testing.T) {
	r := interrupted(t)
	var files []*result.File
	r.options.Save = func(f *result.File) error {
		files = append(files, f)
		return nil
	}
	for i, since := range []time.Duration{0, saveEvery, saveEvery} {
		r.saved = time.Now().Add(-since)
		if err := r.store(i, &result.Cell{Seed: r.cells[i].Seed}); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) != 1 || len(files[0].Cells) != 2 || files[0].Incomplete != "2 of 3" {
		t.Errorf("saved: %+v", files)
	}
}

// Who interrupts an experiment when its last cell is there has interrupted nothing: its bounds are evaluated. One cell less, and it is so.
func TestInterruptedTooLate(t *testing.T) {
	r := interrupted(t)
	r.progress = newProgress(nil, "", nil)
	why := errors.New("interrupted")
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(why)
	for i := range r.cells {
		if err := r.all(ctx); !errors.Is(err, why) {
			t.Errorf("with %d of %d cells: %v", i, len(r.cells), err)
		}
		r.results[i] = &result.Cell{}
	}
	if err := r.all(ctx); err != nil {
		t.Errorf("with all cells: %v", err)
	}
}

// A capture takes the place of an earlier one as a whole: on a full disk half of it would look like all.
func TestCaptureIsReplaced(t *testing.T) {
	r := interrupted(t)
	r.options.Captures = t.TempDir()
	path := filepath.Join(r.options.Captures, "interrupt-run-seed1-a-b.pcap")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte("new"))
	earlier := path + ".earlier"
	if err := errors.Join(err, w.Close(), os.WriteFile(path, []byte("old"), 0o644), os.Link(path, earlier), r.keep(0, &agent.File{Name: "a-b.pcap", Data: packed.Bytes()})); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(path)
	was, failed := os.ReadFile(earlier)
	if string(now) != "new" || string(was) != "old" {
		t.Errorf("%q, and the earlier file has %q: %v", now, was, errors.Join(err, failed))
	}
}

// A cell's capture has the name that it had before there were more seeds and values; no two have the same.
func TestCaptureNames(t *testing.T) {
	names := func(networks string, seeds int) map[string]bool {
		e, err := experiment.Load("congestion-cellular", experiment.Options{Seeds: seeds, Set: []string{"network=" + networks}})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, c := range e.Cells() {
			out[captureName(e, c, "a-b.pcap")] = true
		}
		if len(out) != len(e.Cells()) {
			t.Errorf("%d names of %d cells: %v", len(out), len(e.Cells()), out)
		}
		return out
	}
	few, more := names("verizon-lte,att-lte-driving", 1), names("verizon-lte,tmobile-lte,att-lte-driving", 2)
	for name := range few {
		if !more[name] {
			t.Errorf("%s is not among %v", name, more)
		}
	}
}
