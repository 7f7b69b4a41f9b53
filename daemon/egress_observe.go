package daemon

import (
	"fmt"

	"plait.dev/plait/egress"
)

// crowd is how many routes that change at once are told of in one line.
const crowd = 100

// inTable says where a route of the plan would be.
func (x *exits) inTable(e *egress.Entry) string {
	out := fmt.Sprintf("%v in the main table", e.Prefix)
	if e.Table != 0 {
		out = fmt.Sprintf("%v in table %d, of exit %s,", e.Prefix, e.Table, x.name(e.Table))
	}
	if e.SID.IsValid() {
		out += fmt.Sprintf(" by SID %v", e.SID)
	} else {
		out += fmt.Sprintf(" via %v", e.NextHop)
	}
	if e.Standby {
		out += ", standing by"
	}
	return out
}

// step says what a change of the plan means for the kernel's routes.
func (x *exits) step(c egress.Change) string {
	switch {
	case c.Old == nil:
		return "add route " + x.inTable(c.New)
	case c.New == nil:
		return "delete route " + x.inTable(c.Old)
	}
	return "replace route " + x.inTable(c.Old) + " with " + x.inTable(c.New)
}

// would tells what mode on would do to the kernel's routes.
func (x *exits) would(changes []egress.Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(changes) > crowd {
		x.write(&x.journal.routes, fmt.Sprintf("would change %d routes, the first: %s", len(changes), x.step(changes[0])))
		return
	}
	for _, c := range changes {
		x.write(&x.journal.routes, "would "+x.step(c))
	}
}

// wouldBegin tells what mode on would put into the kernel once the reflectors have told their routes. The caller has x.writing.
func (x *exits) wouldBegin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	sids, main, standby := x.plan.Counts()
	text := fmt.Sprintf("would add %d routes to the main table, %d of them with a standby", main, standby)
	for i, e := range x.config.Exits {
		routes := 0
		for _, n := range sids[i] {
			routes += n
		}
		text += fmt.Sprintf("; %d to table %d, of exit %s, for packets from %v", routes, e.Table, e.Name, e.Addresses)
	}
	x.say(text + "; and would give new MPTCP connections to plait (plait egress routes lists the routes, plait egress explain CLIENT says what a client's connections would use)")
}
