package lab

import (
	"testing"
	"time"

	"plait.dev/plait/lab/result"
)

// Without cells the line says what is done, and since when.
func TestStage(t *testing.T) {
	p := newProgress(nil, "image", 0)
	p.doing("packing, step 2 of 2")
	p.started = time.Now().Add(-12 * time.Second)
	if got, want := p.line(), "image: packing, step 2 of 2; 12s so far"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The time that is left is known without a message from a cell: the shortest send none.
func TestLeftOfShortCells(t *testing.T) {
	p := newProgress(nil, "x", 2)
	p.begin()
	p.finished(0, &result.Cell{})
	if left := p.left(); left < 0 || left > time.Hour {
		t.Errorf("%v left", left)
	}
}
