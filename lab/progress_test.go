package lab

import (
	"testing"
	"time"

	"plait.dev/plait/lab/result"
)

// The time that is left is known without a message from a cell: the shortest send none.
func TestLeftOfShortCells(t *testing.T) {
	p := newProgress(nil, "x", 2)
	p.begin()
	p.finished(0, &result.Cell{})
	if left := p.left(); left < 0 || left > time.Hour {
		t.Errorf("%v left", left)
	}
}
