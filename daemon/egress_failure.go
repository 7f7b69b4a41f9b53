package daemon

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// judgeAgain is after what time a stall that could not be judged is looked at again.
const judgeAgain = 10 * time.Millisecond

// exitOf is the exit that packets from an address of this host to the client leave through; empty if it is none that is configured. The caller has x.mu.
func (x *exits) exitOf(local, client netip.Addr) string {
	for name, addresses := range x.byExit {
		if addresses[local.Is4()] == local {
			return name
		}
	}
	return x.plan.MainExit(client)
}

// observed describes a subflow as egress.Failing wants it. The caller has x.mu.
func (x *exits) observed(s mptcp.Subflow) egress.Flow {
	ends := s.Ends()
	f := egress.Flow{Exit: x.exitOf(ends.Local.Addr(), ends.Remote.Addr())}
	stats, ok := x.flows.stats(ends)
	if !ok {
		return f
	}
	at := func(ns uint64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, int64(ns))
	}
	f.Stalled, f.Silent, f.Heard = at(stats.StalledAtNs), at(stats.UnansweredAtNs), at(stats.HeardAtNs)
	return f
}

// judge looks at connections with a stalled subflow, lets go of exits that fail their clients, and returns the subflows to look at again.
func (x *exits) judge(stalled map[mptcp.Ends]bool) (again map[mptcp.Ends]bool) {
	again, lost := map[mptcp.Ends]bool{}, map[mptcp.Ends]bool{}
	var clients []netip.Addr
	for _, subflows := range x.mptcp.Around(stalled) {
		client := subflows[0].Ends().Remote.Addr()
		x.mu.Lock()
		observed := make([]egress.Flow, len(subflows))
		for i, s := range subflows {
			observed[i] = x.observed(s)
		}
		verdict := egress.Judge(observed)
		for _, exit := range verdict.Exits {
			if x.health.Fail(exit, client, time.Now()) {
				clients = append(clients, client)
				x.say("exit " + exit + " does not bring packets to " + client.String() + ": not used for this client until it is tried again")
			}
		}
		if main := x.plan.MainExit(client); verdict.Silent && x.health.Bet(main, client, time.Now()) {
			clients = append(clients, client)
			x.say("all exits are silent for " + client.String() + ": betting that it is " + main + ", the best path's")
		}
		for _, i := range verdict.Lost {
			lost[subflows[i].Ends()] = true
			x.say("subflow " + subflows[i].Local.String() + " to " + subflows[i].Remote.String() + " is closed: nothing arrives on it, while others of its exit are well")
		}
		x.mu.Unlock()
		for _, s := range subflows {
			if verdict.Unsure && stalled[s.Ends()] {
				again[s.Ends()] = true
			}
		}
	}
	x.mptcp.Act(clients...)
	x.mptcp.Drop(lost)
	return again
}

// runFlows hears of stalled flows until the kernel half is closed.
func (x *exits) runFlows() error {
	events := make(chan flowEvent, 1024)
	failed := make(chan error, 1)
	go func() {
		for {
			e, err := x.flows.read()
			if err != nil {
				failed <- err
				return
			}
			events <- e
		}
	}()
	var pending map[mptcp.Ends]bool
	var later <-chan time.Time
	for {
		select {
		case err := <-failed:
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		case e := <-events:
			if !e.stalled {
				delete(pending, e.ends)
				continue
			}
			if pending == nil {
				pending = map[mptcp.Ends]bool{}
			}
			pending[e.ends] = true
		case <-later:
		}
		if len(events) == 0 && len(pending) > 0 {
			pending, later = x.judge(pending), time.After(judgeAgain)
		}
	}
}

// recover offers exits again whose hold-down is over, and takes them back where no client came.
func (x *exits) recover(now time.Time) {
	x.mu.Lock()
	clients := x.health.Tick(now)
	for _, c := range clients {
		x.say("exits of " + c.String() + " not used: " + strings.Join(x.health.Held()[c], " "))
	}
	x.mu.Unlock()
	x.mptcp.Act(slices.Compact(clients)...)
}

// joined is the proof that an exit is well for a client.
func (x *exits) joined(client, addr netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.health.Proven(x.exitOf(addr, client), client, time.Now())
}
