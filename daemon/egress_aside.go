package daemon

import (
	"fmt"
	"net/netip"
	"time"

	"plait.dev/plait/egress"
)

// activeFor is how long a client counts as one of the clients an exit serves.
const activeFor = 10 * time.Second

// carryOut makes changes of the plan in the kernel. The caller has x.mu.
func (x *exits) carryOut(changes []egress.Change) {
	if x.settled && x.kernel != nil {
		_ = x.kernel.Apply(changes) // each step that failed is in the journal, and the next comparison tries again
	}
}

// leave takes the best path out of the main table for a client's prefix, if it fails at least half of the clients it served there lately: plain TCP, and connections
// that begin, have nothing else. The caller has x.mu.
func (x *exits) leave(client netip.Addr, now time.Time) {
	prefix, exit := x.plan.Main(client)
	if exit == "" || x.health.Fit(exit, client) {
		return
	}
	served, failed := 1, 1
	for _, c := range x.traffic.Active(exit, prefix, now.Add(-activeFor)) {
		if c == client {
			continue
		}
		served++
		if !x.health.Fit(exit, c) {
			failed++
		}
	}
	if 2*failed < served {
		return
	}
	changes := x.plan.SetAside(prefix, exit)
	if len(changes) == 0 {
		return
	}
	x.aside[prefix] = exit
	x.say(fmt.Sprintf("exit %s fails %d of %d clients in %v: the best path is set aside for the standby", exit, failed, served, prefix))
	x.carryOut(changes)
}

// comeBack puts the best path back where its exit is proven for a client, or no client is left to prove it. The caller has x.mu.
func (x *exits) comeBack() {
	for prefix, exit := range x.aside {
		if x.health.Ails(exit, prefix) {
			continue
		}
		delete(x.aside, prefix)
		x.say(fmt.Sprintf("exit %s is well for %v, or nobody is there to tell: the best path is back", exit, prefix))
		x.carryOut(x.plan.Restore(prefix))
	}
}
