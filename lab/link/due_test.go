package link

import (
	"testing"
	"time"
)

func TestDueOrder(t *testing.T) {
	var d due
	// Ties keep the order of arrival, also when inserted before later ones.
	for i, at := range []int64{5, 9, 5, 1, 9, 5} {
		d.add(time.Duration(at)*ms, numbered(byte(i), 100))
	}
	if _, ok := d.Receive(1*ms - 1); ok {
		t.Error("a packet came out before its time")
	}
	for _, want := range []exit{{1 * ms, 3}, {5 * ms, 0}, {5 * ms, 2}, {5 * ms, 5}, {9 * ms, 1}, {9 * ms, 4}} {
		at, _ := d.Next()
		p, ok := d.Receive(at)
		if !ok || at != want.at || p.Data[0] != want.number {
			t.Errorf("packet %d at %v, want %v", p.Data, at, want)
		}
	}
}
