package daemon

import (
	"context"
	"time"
)

// repairEvery is how often the kernel's state is compared with the plan, for what no event of the kernel tells.
const repairEvery = 10 * time.Second

// followEvery is how often the ways to next hops are asked for, at most, and a tenth of the time. They are as many as border routers, or as their neighbours.
const followEvery = time.Second

// comparing says when all of the kernel's state is compared with the plan again. With a million routes that takes seconds.
type comparing struct {
	ended time.Time     // the last comparison
	took  time.Duration // likewise
	due   time.Time
	again int // comparisons in a row that left something undone
}

// did notes a comparison.
func (c *comparing) did(began, ended time.Time, err error) {
	c.ended, c.took = ended, ended.Sub(began)
	c.due = ended.Add(max(repairEvery, 50*c.took))
	if err == nil {
		c.again = 0
		return
	}
	c.undone(ended)
	c.again++
}

// undone brings the next comparison forward, for a step that failed: the way to a next hop may come with the next packets of a routing protocol, which nobody tells. What
// goes on failing is tried less and less often while the plan stays as it is, and no more than a tenth of the time is for that.
func (c *comparing) undone(now time.Time) {
	soon := now.Add(repairEvery << min(c.again, 10))
	if least := c.ended.Add(10 * c.took); soon.Before(least) {
		soon = least
	}
	if soon.Before(c.due) {
		c.due = soon
	}
}

// fresh is undone for a change of the plan: that something else goes on failing is no reason to let it wait.
func (c *comparing) fresh(now time.Time) {
	c.again = 0
	c.undone(now)
}

// lacks notes what keeps the kernel's state from being that of the plan.
func (x *exits) lacks(err error) {
	why := firstLine(err)
	x.lacking.Store(&why)
}

// behind says what the kernel lacks of the plan, in mode on.
func (x *exits) behind() string {
	if x == nil {
		return ""
	}
	why := x.lacking.Load()
	if why == nil {
		return ""
	}
	return "the kernel lacks some of the exits' routes, rules or addresses (plait egress log): " + *why
}

// settle makes the kernel's state that of the plan for the first time, or again. The caller has x.writing.
func (x *exits) settle() error {
	x.settled.Store(true)
	if x.kernel == nil {
		return nil
	}
	err := x.kernel.Reconcile(x.plan.Entries())
	if err == nil {
		x.lacking.Store(nil)
		return nil
	}
	x.lacks(err)
	x.logf("%v", err)
	return err
}

// begin makes the kernel's state that of the plan for the first time.
func (x *exits) begin() (err error) {
	x.writing.Lock()
	if !x.settled.Load() {
		if x.kernel == nil {
			x.wouldBegin()
		}
		err = x.settle()
		close(x.begun)
	}
	x.writing.Unlock()
	return err
}

// repair puts back what the kernel says is lost.
func (x *exits) repair() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if !x.settled.Load() {
		return nil
	}
	all, err := x.kernel.Repair(x.plan.Entries())
	switch {
	case err != nil:
		x.lacks(err)
		x.logf("%v", err)
	case all:
		x.lacking.Store(nil)
	}
	return err
}

// compare makes good whatever is not as planned.
func (x *exits) compare() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if !x.settled.Load() {
		return nil
	}
	return x.settle()
}

// follow compares everything where the way to a next hop is another one, or was missing and is there, and says how long it took to ask.
func (x *exits) follow() (asked time.Duration, strayed bool, err error) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if !x.settled.Load() || x.kernel == nil {
		return 0, false, nil
	}
	began := time.Now()
	strayed = x.kernel.Strayed()
	asked = time.Since(began)
	if strayed {
		err = x.settle()
	}
	return asked, strayed, err
}

// runRoutes keeps the kernel's routes what they should be until ctx ends.
func (x *exits) runRoutes(ctx context.Context) {
	var lost <-chan struct{}
	if x.kernel != nil {
		lost = x.kernel.Lost()
	}
	c := comparing{due: time.Now().Add(repairEvery)}
	timer := time.NewTimer(repairEvery)
	defer timer.Stop()
	ways := time.NewTimer(followEvery)
	defer ways.Stop()
	defer x.quiet.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-x.quiet.C:
			err = x.begin()
		case <-lost:
			err = x.repair()
		case <-x.misplaced:
			x.replace(ctx)
		case <-x.undone:
			c.fresh(time.Now())
		case <-ways.C:
			began := time.Now()
			asked, strayed, failed := x.follow()
			if strayed {
				c.did(began, time.Now(), failed)
			}
			ways.Reset(max(followEvery, 10*asked))
		case <-timer.C:
			began, failed := time.Now(), x.compare()
			c.did(began, time.Now(), failed)
		}
		if err != nil {
			c.undone(time.Now())
		}
		timer.Reset(time.Until(c.due))
	}
}
