package daemon

import (
	"fmt"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// A flow that has become slow is judged by what its connection brought since, after slowSoon, then after twice as long each time, up to slowLate; the kernel half says again later that it is slow.
// Data that has waited for needsNs all the time needs it.
const (
	slowSoon = 15 * time.Millisecond
	slowLate = 120 * time.Millisecond
	needsNs  = uint64(100 * time.Millisecond)
)

// mostSlow is how many flows are judged at a time: others are told of again.
const mostSlow = 256

// slowFlows are flows that are to be judged.
type slowFlows map[mptcp.Ends]slowFlow

// slowFlow is what each flow of its connection had brought when it was found slow.
type slowFlow struct {
	found, judge time.Time
	acked        map[mptcp.Ends]uint64
}

// find takes in a flow that has become slow.
func (x *exits) find(slow slowFlows, e mptcp.Ends, now time.Time) {
	if _, is := slow[e]; is || len(slow) >= mostSlow {
		return
	}
	f := slowFlow{now, now.Add(slowSoon), map[mptcp.Ends]uint64{}}
	for _, g := range x.mptcp.Around(map[mptcp.Ends]bool{e: true}) {
		for _, s := range g.Subflows {
			if stats, ok := x.flows.stats(s.Ends()); ok {
				f.acked[s.Ends()] = stats.AckedBytes
			}
		}
	}
	slow[e] = f
}

// next is when the next is to be judged; nil: none is.
func (slow slowFlows) next() <-chan time.Time {
	if len(slow) == 0 {
		return nil
	}
	wait := slowLate
	for _, f := range slow {
		wait = min(wait, time.Until(f.judge))
	}
	return time.After(wait)
}

// pacesOf is what the flows of a group did since, and the exit of one of them.
func (x *exits) pacesOf(g mptcp.Group, one mptcp.Ends, since slowFlow) (exit string, out []egress.Pace) {
	x.mu.Lock()
	defer x.mu.Unlock()
	exit = x.exitOf(one.Local.Addr(), g.Client)
	for _, s := range g.Subflows {
		e := s.Ends()
		stats, ok := x.flows.stats(e)
		acked, was := since.acked[e]
		if !ok || !was {
			continue
		}
		p, now := egress.Pace{Exit: x.exitOf(e.Local.Addr(), g.Client), Bytes: stats.AckedBytes - acked, RTTUs: stats.RttUs}, monotonicNs()
		if timed := stats.TimedAtNs; timed != 0 && now > timed {
			p.RTTUs = max(p.RTTUs, uint32((now-timed)/1000))
		}
		p.Waits = stats.WaitingAtNs != 0 && now > stats.WaitingAtNs+needsNs
		out = append(out, p)
	}
	return exit, out
}

// leaveSlow has a connection go on without an exit one of whose flows has become slow, if that holds it up: it returns the flows through it, for what they were given is to be sent again by the
// others. The exit stands by.
func (x *exits) leaveSlow(g mptcp.Group, slow mptcp.Ends, since slowFlow, now time.Time) (lost []mptcp.Ends) {
	exit, paces := x.pacesOf(g, slow, since)
	if !egress.Slow(paces, exit) || !x.brownouts.Late(exit, g.Client, now) { // not under x.mu: it may have to wait for a look
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say(fmt.Sprintf("%s has become slow for %v, and brings little of what the others carry: it stands by for this client, and what is on the way through it is sent again", called(exit), g.Client))
	for _, s := range g.Subflows {
		if x.exitOf(s.Local.Addr(), g.Client) == exit {
			lost = append(lost, s.Ends())
		}
	}
	return lost
}

// hurry judges the slow flows that it is time for.
func (x *exits) hurry(slow slowFlows, now time.Time) {
	for e, f := range slow {
		if now.Before(f.judge) {
			continue
		}
		f.judge = now.Add(now.Sub(f.found))
		slow[e] = f
		closing := map[mptcp.Ends]bool{}
		for _, g := range x.mptcp.Around(map[mptcp.Ends]bool{e: true}) {
			if lost := x.leaveSlow(g, e, f, now); len(lost) > 0 {
				for _, l := range lost {
					closing[l] = true
				}
				x.mptcp.Act(g.Client)
			}
		}
		x.mptcp.Drop(closing)
		if len(closing) > 0 || f.judge.Sub(f.found) > slowLate {
			delete(slow, e)
		}
	}
}
