package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
)

// What has finished is saved within a minute, also if nothing else finishes for long, and once; all of it is not, nor is anything later.
func TestSavedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := interrupted(t)
		var files []*result.File
		r.options.Save = func(f *result.File) error {
			files = append(files, f)
			return nil
		}
		ctx, end := context.WithCancel(t.Context())
		saved := make(chan error)
		go func() { saved <- r.runSaving(ctx) }()
		for i, want := range []int{1, 2, 2} { // files a minute after each cell
			time.Sleep(saveEvery / 2)
			r.store(i, &result.Cell{Seed: r.cells[i].Seed})
			time.Sleep(saveEvery)
			synctest.Wait()
			if len(files) != want {
				t.Errorf("a minute after cell %d: %d files, want %d", i, len(files), want)
			}
			time.Sleep(10 * saveEvery)
		}
		end()
		if err := <-saved; err != nil || len(files) != 2 || files[1].Incomplete != "2 of 3" {
			t.Errorf("%v, saved: %+v", err, files)
		}
	})
}

// What cannot be saved ends the cells that run, and is why.
func TestNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := interrupted(t)
		r.progress = newProgress(nil, "", nil)
		full := errors.New("no space left")
		r.options.Save = func(*result.File) error { return full }
		r.store(0, &result.Cell{})
		began := time.Now()
		if err := r.all(t.Context()); !errors.Is(err, full) || time.Since(began) != saveEvery {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
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
