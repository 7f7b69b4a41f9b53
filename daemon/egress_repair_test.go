package daemon

import (
	"errors"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/route"
)

// At a full table a comparison takes seconds, and the next one is due minutes later. A step that fails meanwhile does not wait for that, and one that goes on failing
// does not keep the host busy.
func TestComparing(t *testing.T) {
	const took = 4 * time.Second
	began := time.Unix(1000, 0)
	failed := errors.New("no way to the next hop")
	var c comparing
	waits := func(what string, from time.Time, want time.Duration) {
		t.Helper()
		if got := c.due.Sub(from); got != want {
			t.Errorf("%s: the next comparison is due in %v, want %v", what, got, want)
		}
	}
	now := began.Add(took)
	c.did(began, now, nil)
	waits("all is well", now, 50*took)
	now = now.Add(time.Minute)
	c.undone(now)
	waits("a step failed", now, repairEvery)
	for i, want := range []time.Duration{10 * took, 10 * took, 10 * took, 8 * repairEvery, 16 * repairEvery, 50 * took, 50 * took} {
		now = now.Add(took)
		c.did(now.Add(-took), now, failed)
		waits("comparison "+string(rune('1'+i))+" that failed", now, want)
	}
	now = now.Add(10 * took)
	c.fresh(now)
	waits("a change failed, after others that go on to", now, repairEvery)
	c.did(now, now.Add(took), nil)
	now = now.Add(took)
	c.undone(now)
	waits("a step failed right after a comparison", now, 10*took)
	c.did(now, now, nil)
	c.undone(now.Add(time.Second))
	waits("a small table", now, repairEvery)
}

// A step of the plan's changes that failed is told; that there was no comparison yet says less than what keeps it from succeeding.
func TestUndone(t *testing.T) {
	x := &exits{plan: emptyPlan(t), kernel: &route.Kernel{}, undone: make(chan struct{}, 1)} // it has not been compared, and so refuses changes
	x.settled.Store(true)
	for range 2 { // the second time it is known
		x.change(func() []egress.Change { return nil })
	}
	if len(x.undone) != 1 {
		t.Error("nobody is told of a step that failed")
	}
	if got := x.behind(); got != "" {
		t.Errorf("got %q before anything was compared", got)
	}
	x.lacks(errors.New("find interface s1: no such device"))
	x.change(func() []egress.Change { return nil })
	if got, want := x.behind(), "the kernel lacks some of the exits' routes, rules or addresses (plait egress log): find interface s1: no such device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
