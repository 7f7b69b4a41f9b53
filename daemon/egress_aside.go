package daemon

import (
	"fmt"
	"net/netip"
	"time"

	"plait.dev/plait/egress"
)

// activeFor is how long a client counts as one of the clients an exit serves.
const activeFor = 10 * time.Second

// leaves is the plan's part of leave. The caller has x.mu.
func (x *exits) leaves(client netip.Addr, now time.Time) []egress.Change {
	prefix, exit := x.plan.Main(client)
	if exit == "" || x.health.Fit(exit, client) {
		return nil
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
		return nil
	}
	changes := x.plan.SetAside(prefix, exit)
	if len(changes) > 0 {
		x.aside[prefix] = exit
		x.say(fmt.Sprintf("exit %s fails %d of %d clients in %v: the best path is set aside for the standby", exit, failed, served, prefix))
	}
	return changes
}

// leave takes the best path out of the main table for a client's prefix, if it fails at least half of the clients it served there lately: plain TCP, and connections
// that begin, have nothing else.
func (x *exits) leave(client netip.Addr, now time.Time) {
	x.change(func() []egress.Change { return x.leaves(client, now) })
}

// returns is the plan's part of comeBack. The caller has x.mu.
func (x *exits) returns() (changes []egress.Change) {
	for prefix, exit := range x.aside {
		if !x.health.Ails(exit, prefix) {
			delete(x.aside, prefix)
			x.say(fmt.Sprintf("exit %s is well for %v, or nobody is there to tell: the best path is back", exit, prefix))
			changes = append(changes, x.plan.Restore(prefix)...)
		}
	}
	return changes
}

// comeBack puts the best path back where its exit is proven for a client, or no client is left to prove it.
func (x *exits) comeBack() {
	x.change(x.returns)
}
