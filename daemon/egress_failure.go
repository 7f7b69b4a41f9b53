package daemon

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// A stall that cannot be judged yet is looked at again after judgeSoon while it is young, then after judgeLate, and whenever a flow is heard, until it ends.
const (
	judgeSoon = 10 * time.Millisecond
	judgeLate = time.Second
	young     = 2 * time.Second
)

// ownExit is the exit that an address of this host belongs to; empty: none.
func (x *exits) ownExit(local netip.Addr) string {
	for name, addresses := range x.byExit {
		if addresses[local.Is4()] == local {
			return name
		}
	}
	return ""
}

// exitOf is the exit that packets from an address of this host to the client leave through; empty if it is none that is configured. The caller has x.mu.
func (x *exits) exitOf(local, client netip.Addr) string {
	if exit := x.ownExit(local); exit != "" {
		return exit
	}
	return x.plan.MainExit(client)
}

// overdueNs is how long an answer may take to a flow that has no timer in the kernel: it is looked at once a second.
const overdueNs = uint64(time.Second)

// overdue says whether a flow stalls whose timer the kernel had no memory for.
func overdue(s *bpf.FlowStats) bool {
	return s.Armed == bpf.FlowRefused && s.StalledAtNs == 0 && s.AskedAtNs != 0 && monotonicNs() > s.AskedAtNs+overdueNs
}

// waitsNs is how long data must wait to be sent for the exit to be too slow for it.
const waitsNs = uint64(500 * time.Millisecond)

// waits says whether data has waited for a flow all the time for so long.
func waits(s *bpf.FlowStats) bool {
	return s.WaitingAtNs != 0 && monotonicNs() > s.WaitingAtNs+waitsNs
}

// heardNs is when a flow was last heard. Of one with nothing on the way that counts only as far as something was acknowledged since the last look: clients send ACKs of their own accord, too, to keep idle
// connections alive, and these say nothing of the way there.
func (x *exits) heardNs(e mptcp.Ends, s *bpf.FlowStats) uint64 {
	before, at := x.traffic.Before(flowKey(e))
	if s.UnansweredAtNs != 0 || s.AckedBytes > before.AckedBytes {
		return s.HeardAtNs
	}
	return min(s.HeardAtNs, monotonicNs()-uint64(time.Since(at)))
}

// observed describes a subflow as egress.Judge wants it. The caller has x.mu.
func (x *exits) observed(s mptcp.Subflow) egress.Flow {
	ends := s.Ends()
	f := egress.Flow{Exit: x.exitOf(ends.Local.Addr(), ends.Remote.Addr())}
	stats, ok := x.flows.stats(ends)
	if !ok {
		return f // nothing was sent on it yet
	}
	at := func(ns uint64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, int64(ns))
	}
	if overdue(&stats) {
		stats.StalledAtNs = stats.AskedAtNs + overdueNs
	}
	unanswered := cmp.Or(stats.UnansweredAtNs, stats.AskedAtNs) // an answer on another CPU may have cleared the first after data was sent
	f.Stalled, f.Silent, f.Heard = at(stats.StalledAtNs), at(unanswered), at(x.heardNs(ends, &stats))
	return f
}

// called is an exit in the log. One that the configuration lacks carries what BGP's best path sends there.
func called(exit string) string {
	if exit == "" {
		return "the best path's exit, which is none of the configuration,"
	}
	return "exit " + exit
}

// act does what a verdict says, and returns the subflows to close. The caller has x.mu.
func (x *exits) act(v egress.Verdict, g mptcp.Group, now time.Time) (changed bool, lost []mptcp.Ends) {
	for _, exit := range v.Exits {
		if x.health.Fail(exit, g.Client, now) {
			changed = true
			x.say(called(exit) + " does not bring packets to " + g.Client.String() + ": not used for this client until it is tried again")
			x.suspect(exit, g.Client, now)
		}
	}
	if main := x.plan.MainExit(g.Client); v.Silent && x.health.Bet(main, g.Client, now) {
		changed = true
		x.say("all exits are silent for " + g.Client.String() + ": betting that it is " + main + ", the best path's")
	}
	for _, i := range v.Lost {
		lost = append(lost, g.Subflows[i].Ends())
		x.say("subflow " + g.Subflows[i].Local.String() + " to " + g.Subflows[i].Remote.String() + " is closed: nothing arrives on it, while others of its exit are well")
	}
	for _, i := range v.Stuck {
		s := g.Subflows[i].Ends()
		exit := x.exitOf(s.Local.Addr(), g.Client)
		if x.brownouts.LosesAnyway(exit, g.Client, x.config.Exits) || !x.health.Cut(exit, g.Client, now) {
			continue
		}
		lost = append(lost, s)
		x.say("subflow " + g.Subflows[i].Local.String() + " to " + g.Subflows[i].Remote.String() + " is closed: a packet was lost on it, and what other exits bring waits for that")
	}
	return changed, lost
}

// stalledNs is when the first stall of some flows was found.
func stalledNs(flows []egress.Flow) uint64 {
	first := time.Time{}
	for _, f := range flows {
		if !f.Stalled.IsZero() && (first.IsZero() || f.Stalled.Before(first)) {
			first = f.Stalled
		}
	}
	return uint64(first.UnixNano())
}

// believe asks the sockets of flows that stall whether that is so: answers that come by another interface, or that another's program keeps from those that watch, are seen by the socket alone. It returns whether
// one is well.
func believe(g mptcp.Group, observed []egress.Flow, now time.Time) (wrong bool) {
	for i := range observed {
		if f := &observed[i]; !f.Stalled.IsZero() {
			if answered, err := mptcp.Answered(g.Subflows[i].Ends()); err == nil && answered {
				f.Stalled, f.Silent, f.Heard, wrong = time.Time{}, time.Time{}, now, true
			}
		}
	}
	return wrong
}

// mostBeside is how many other flows of a client are asked whether its exits are well.
const mostBeside = 256

// judge looks at the connections with stalled subflows, and with those that were said to be stuck just now, lets go of exits that fail their clients, and returns the stalls that are not over.
func (x *exits) judge(stalled map[mptcp.Ends]time.Time, stuck map[mptcp.Ends]bool) map[mptcp.Ends]time.Time {
	some := maps.Clone(stuck)
	for e := range stalled {
		some[e] = true
	}
	left, lost := map[mptcp.Ends]time.Time{}, map[mptcp.Ends]bool{}
	var clients []netip.Addr
	since, beside := map[netip.Addr]uint64{}, map[netip.Addr][]mptcp.Subflow{}
	for _, g := range x.mptcp.Around(some) {
		if beside[g.Client] == nil {
			beside[g.Client] = x.mptcp.Flows(g.Client, mostBeside)
		}
		x.mu.Lock()
		now := time.Unix(0, int64(monotonicNs()))
		observed := make([]egress.Flow, len(g.Subflows))
		for i, s := range g.Subflows {
			observed[i] = x.observed(s)
			observed[i].Stuck = stuck[s.Ends()]
		}
		var others []egress.Flow
		for _, s := range beside[g.Client] {
			if !slices.ContainsFunc(g.Subflows, func(own mptcp.Subflow) bool { return own.Ends() == s.Ends() }) {
				others = append(others, x.observed(s))
			}
		}
		v := egress.Judge(observed, others, now)
		if (len(v.Exits) > 0 || v.Silent) && believe(g, observed, now) {
			v = egress.Judge(observed, others, now)
		}
		changed, closing := x.act(v, g, time.Now())
		x.mu.Unlock()
		if changed {
			clients = append(clients, g.Client)
			since[g.Client] = stalledNs(observed)
		}
		for _, e := range closing {
			lost[e] = true
		}
		for i, s := range g.Subflows {
			if since, pending := stalled[s.Ends()]; pending && !observed[i].Stalled.IsZero() {
				left[s.Ends()] = since
			}
		}
	}
	x.mptcp.Act(clients...)
	x.mptcp.Drop(lost)
	for client, ns := range since {
		x.leave(client, ns) // after what helps at once
	}
	return left
}

// again is when stalls are to be judged again; nil: never.
func again(stalled map[mptcp.Ends]time.Time) <-chan time.Time {
	if len(stalled) == 0 {
		return nil
	}
	wait := judgeLate
	for _, since := range stalled {
		if time.Since(since) < young {
			wait = judgeSoon
		}
	}
	return time.After(wait)
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
	stalled, stuck, slow := map[mptcp.Ends]time.Time{}, map[mptcp.Ends]bool{}, slowFlows{}
	var later, slowDue <-chan time.Time
	for {
		select {
		case err := <-failed:
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		case e := <-events:
			switch e.news {
			case bpf.FlowSlow:
				x.find(slow, e.ends, time.Now())
			case bpf.FlowStuck:
				stuck[e.ends] = true
			case bpf.FlowStalled:
				stalled[e.ends] = time.Now()
				select {
				case x.stalls <- struct{}{}:
				default:
				}
			default:
				delete(stalled, e.ends)
			}
		case e := <-x.overdue:
			stalled[e] = time.Now()
		case <-later:
		case now := <-slowDue:
			x.hurry(slow, now)
		}
		if len(events) == 0 && len(stalled)+len(stuck) > 0 {
			stalled = x.judge(stalled, stuck)
			clear(stuck)
			later = again(stalled)
		}
		slowDue = slow.next()
	}
}

// offered says what a client is offered again after a hold-down. The caller has x.mu.
func (x *exits) offered(client netip.Addr) {
	var not []string
	for _, e := range x.config.Exits {
		if !x.health.Fit(e.Name, client) {
			not = append(not, e.Name)
		}
	}
	if len(not) > 0 {
		x.say("nothing came through for " + client.String() + ": still not used: " + strings.Join(not, " "))
	} else {
		x.say("all exits are offered again to " + client.String())
	}
}

// recover offers exits again whose hold-down is over, and takes them back where no client came.
func (x *exits) recover(now time.Time) {
	x.mu.Lock()
	due := x.health.Due(now)
	x.mu.Unlock()
	present := map[netip.Addr]bool{}
	for _, c := range due {
		present[c] = x.mptcp.Present(c)
	}
	x.mu.Lock()
	clients := x.health.Tick(now, func(c netip.Addr) bool { return present[c] })
	x.mu.Unlock()
	for some := range slices.Chunk(clients, crowd) {
		x.mu.Lock() // not for all at once
		for _, c := range some {
			x.offered(c)
		}
		x.mu.Unlock()
	}
	x.mptcp.Act(clients...)
	x.comeBack(now)
	x.revive(now)
}

// joined is the proof that an exit is well for a client, by the address that it came from.
func (x *exits) joined(client, addr netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	exit, now := x.exitOf(addr, client), time.Now()
	x.health.Proven(exit, client, now)
	x.outages.Proven(exit)
}
