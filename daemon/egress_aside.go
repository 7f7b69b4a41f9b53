package daemon

import (
	"fmt"
	"net/netip"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

const (
	// witnesses are how many flows must be silent, and none heard, before a best path is set aside: a single one may have lost its last packets by chance.
	witnesses = 2
	// The flows are asked so often, so long: one that sends little is silent for some hundred milliseconds before it is known to stall.
	askEvery, askFor = 100 * time.Millisecond, 2 * time.Second
	// late is how long after a stall was found answers may still come to what was sent before the failure: delayed ACKs take 40 ms.
	late = 50 * time.Millisecond
)

// hears counts the flows through an exit to a prefix that stall since a stall was found, and those that were answered after it.
func (x *exits) hears(exit string, prefix netip.Prefix, sinceNs uint64) (stalled, heard int) {
	err := x.flows.count(func(_ bpf.FlowKey, e mptcp.Ends, s *bpf.FlowStats) {
		stalls, answered := s.StalledAtNs >= sinceNs, s.HeardAtNs > sinceNs+uint64(late)
		if !prefix.Contains(e.Remote.Addr()) || !stalls && !answered {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		switch {
		case x.exitOf(e.Local.Addr(), e.Remote.Addr()) != exit:
		case stalls:
			stalled++
		default:
			heard++
		}
	})
	if err != nil {
		return 0, 1 // the kernel half is gone
	}
	return stalled, heard
}

// setAside takes the best path to a prefix out of the main table.
func (x *exits) setAside(prefix netip.Prefix, exit string, flows int) {
	x.change(func() []egress.Change {
		changes := x.plan.SetAside(prefix, exit)
		if len(changes) > 0 {
			x.aside[prefix] = exit
			x.say(fmt.Sprintf("exit %s is silent for %v, all its %d flows there: the best path is set aside for the standby", exit, prefix, flows))
		}
		return changes
	})
}

// leave finds out, beside what else is done, whether the exit of the best path fails a client's whole prefix since a stall was found, and sets the path aside: plain TCP, and
// connections that begin, have nothing else.
func (x *exits) leave(client netip.Addr, sinceNs uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	prefix, exit := x.plan.Main(client)
	if exit == "" || x.asking[prefix] || x.health.Fit(exit, client) {
		return
	}
	x.asking[prefix] = true
	go func() {
		for begin := time.Now(); time.Since(begin) < askFor; time.Sleep(askEvery) {
			stalled, heard := x.hears(exit, prefix, sinceNs)
			if heard > 0 {
				break
			}
			if stalled >= witnesses {
				x.setAside(prefix, exit, stalled)
				break
			}
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.asking, prefix)
	}()
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
