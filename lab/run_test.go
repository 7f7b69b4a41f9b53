package lab

import (
	"testing"
	"time"

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
