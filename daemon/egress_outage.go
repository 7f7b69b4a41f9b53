package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// renewAtOnce are the prefixes whose routes change together when an exit goes out: what reflectors tell, and who decides for a connection, waits no longer than for these.
const renewAtOnce = 512

// progressOf is what Inquiry asks of the flows through an exit, from its own addresses and by the main table.
func (x *exits) progressOf(exit string) (map[bpf.FlowKey]egress.Progress, error) {
	out, at := map[bpf.FlowKey]egress.Progress{}, x.places()
	return out, x.flows.count(func(k bpf.FlowKey, e mptcp.Ends, s *bpf.FlowStats) {
		by := x.ownExit(e.Local.Addr())
		if by == "" {
			by = at(e.Remote.Addr()).main
		}
		if by == exit {
			out[k] = egress.Progress{AckedBytes: s.AckedBytes, Heard: time.Unix(0, int64(s.HeardAtNs)), RTT: time.Duration(s.SrttUs) * time.Microsecond}
		}
	})
}

// suspect takes in that an exit has failed a client, and finds out, beside what else is done, whether it is out as a whole if it has failed in so many networks. The caller has x.mu.
func (x *exits) suspect(exit string, client netip.Addr, now time.Time) {
	if !x.outages.Witness(exit, x.plan.Network(client), now) || x.inquired[exit] {
		return
	}
	x.inquired[exit] = true
	x.running.Go(func() { x.inquire(exit, time.Unix(0, int64(monotonicNs()))) })
}

// inquire asks all flows through an exit until it is known whether something still arrives.
func (x *exits) inquire(exit string, since time.Time) {
	inquiry, over, out := egress.NewInquiry[bpf.FlowKey](since), false, false
	for !over {
		flows, err := x.progressOf(exit)
		if err != nil { // there is nobody to ask
			break
		}
		if over, out = inquiry.Look(maps.All(flows), time.Unix(0, int64(monotonicNs()))); !over {
			time.Sleep(askEvery)
		}
	}
	x.mu.Lock()
	delete(x.inquired, exit)
	if out {
		x.goesOut(exit, time.Now())
	}
	x.mu.Unlock()
}

// goesOut decides that an exit is out, if another one can take over without going beyond what the configuration allows. The caller has x.mu.
func (x *exits) goesOut(exit string, now time.Time) {
	silent := fmt.Sprintf("exit %s does not bring packets to clients in %d networks, and nothing that is sent through it arrives any more", exit, x.outages.Witnesses(exit))
	other := slices.ContainsFunc(x.config.Exits, func(e egress.Exit) bool { return e.Name != exit && !x.outages.Out(e.Name) && !x.full[e.Name] })
	switch {
	case !other:
		x.say(silent + ": it stays in use where clients do not find that out, for all other exits are out, or at their caps")
	case x.moved:
		x.say(silent + ": it stays in use where clients do not find that out, for as much leaves by other exits as moved_percent allows")
	default:
		hold := x.outages.Begin(exit, now)
		x.say(fmt.Sprintf("%s: it is out for all clients, for %v and until something arrives through it again", silent, hold))
		x.spread()
	}
}

// acknowledged takes in the flows of the last look, between two times, as signs of life of exits that went out before that.
func (x *exits) acknowledged(from time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for exit, t := range x.traffic.Exits() {
		if since, _ := x.outages.Since(exit); t.Flows > 0 && since.Before(from) {
			x.outages.Proven(exit)
		}
	}
}

// revive brings exits back that are out.
func (x *exits) revive(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for exit, proven := range x.outages.Over(now) {
		why := "something arrived through it"
		if !proven {
			why = "it has rested, and nobody is there to prove it"
		}
		x.say(fmt.Sprintf("exit %s is out no more: %s", exit, why))
		x.spread()
	}
}

// spread has routes and connections follow, now that an exit is out, or is no more.
func (x *exits) spread() {
	select {
	case x.misplaced <- struct{}{}:
	default: // they are about to
	}
}

// busyFirst puts the prefixes to which something was sent in the last minutes before the others: there are thousands of them, not a million.
func (x *exits) busyFirst(prefixes []netip.Prefix) {
	idle := map[netip.Prefix]int{}
	for _, n := range x.networks.Busiest(len(prefixes)) {
		idle[n.Prefix] = -1
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Compare(idle[a], idle[b]) })
}

// replace brings the main table to what it should be since exits went out or came back, some prefixes at a time, and then the connections.
func (x *exits) replace(ctx context.Context) {
	x.writing.Lock()
	x.mu.Lock()
	for _, e := range x.config.Exits {
		x.plan.SetOut(e.Name, x.outages.Out(e.Name))
	}
	x.mu.Unlock()
	prefixes := x.plan.Misplaced()
	x.writing.Unlock()
	x.busyFirst(prefixes)
	began, changed := time.Now(), 0
	for some := range slices.Chunk(prefixes, renewAtOnce) {
		if ctx.Err() != nil {
			return
		}
		changes := x.change(func() []egress.Change { return x.plan.Renew(some) })
		changed += len(changes)
		x.tell(changes)
	}
	if x.mptcp != nil {
		x.mptcp.Changed()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say(fmt.Sprintf("the main table has followed which exits are out: %d changes in %v", changed, time.Since(began).Round(time.Millisecond)))
}
