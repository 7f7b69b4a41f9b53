package daemon

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

const (
	// witnesses are how many flows must be silent, and none heard, before a best path is set aside: a single one may have lost its last packets by chance.
	witnesses = 2
	// The flows are asked so often, and when another one stalls, so long: one that sends little is silent for some hundred milliseconds before it is known to stall.
	askEvery, askFor = 100 * time.Millisecond, 2 * time.Second
	// late is how long after a stall was found answers may still come to what was sent before the failure: delayed ACKs take 40 ms.
	late = 50 * time.Millisecond
	// before it another flow may have stalled of the same failure.
	before = time.Second
	// unproven is how long a best path is set aside when no client is left whose subflow would prove its exit: then plain TCP has to try.
	unproven = 5 * time.Minute
)

// asked is what is to be found out about a prefix: whether its exit is silent since a stall was found.
type asked struct {
	exit    string
	sinceNs uint64
	until   time.Time
}

// heard counts flows that stall, and those that were answered.
type heard struct{ stalled, answered int }

// hears asks all flows once, for all prefixes that are asked about.
func (x *exits) hears(asking map[netip.Prefix]asked) (map[netip.Prefix]heard, error) {
	out := map[netip.Prefix]heard{}
	return out, x.flows.count(func(_ bpf.FlowKey, e mptcp.Ends, s *bpf.FlowStats) {
		x.mu.Lock()
		prefix, _ := x.plan.Main(e.Remote.Addr())
		exit := x.exitOf(e.Local.Addr(), e.Remote.Addr())
		x.mu.Unlock()
		a, is := asking[prefix]
		if !is || a.exit != exit {
			return
		}
		h := out[prefix]
		switch {
		case s.StalledAtNs > 0 && s.StalledAtNs+uint64(before) >= a.sinceNs:
			h.stalled++
		case x.heardNs(e, s) > a.sinceNs+uint64(late):
			h.answered++
		}
		out[prefix] = h
	})
}

// putAside is an exit that packets to a prefix do not leave through by the main table.
type putAside struct {
	prefix netip.Prefix
	exit   string
}

// setAside takes the exit of the best path to a prefix, or of its standby, out of the main table.
func (x *exits) setAside(prefix netip.Prefix, exit string, flows int) {
	x.tell(x.change(func() []egress.Change {
		changes := x.plan.SetAside(prefix, exit)
		if len(changes) > 0 {
			x.aside[putAside{prefix, exit}] = time.Now()
			x.say(fmt.Sprintf("%s is silent for %v, all its %d flows there: it is set aside for the next", called(exit), prefix, flows))
		}
		return changes
	}))
}

// ask goes on until nothing is asked any more.
func (x *exits) ask() {
	for {
		x.mu.Lock()
		maps.DeleteFunc(x.asking, func(_ netip.Prefix, a asked) bool { return time.Now().After(a.until) })
		asking := maps.Clone(x.asking)
		if len(asking) == 0 {
			x.asks = false
		}
		x.mu.Unlock()
		if len(asking) == 0 {
			return
		}
		answers, err := x.hears(asking)
		for prefix, a := range asking {
			h := answers[prefix]
			if h.answered == 0 && h.stalled >= witnesses && err == nil {
				x.setAside(prefix, a.exit, h.stalled)
			}
			if err != nil || h.answered > 0 || h.stalled >= witnesses { // after an error there is nobody left to ask
				x.mu.Lock()
				delete(x.asking, prefix)
				x.mu.Unlock()
			}
		}
		time.Sleep(judgeSoon)
		select {
		case <-x.stalls: // perhaps the witness that was missing: plain TCP's next retransmission waits for it
		case <-time.After(askEvery - judgeSoon):
		}
	}
}

// leave finds out, beside what else is done, whether the exit of the best path fails a client's whole prefix since a stall was found, and sets the path aside: plain TCP, and
// connections that begin, have nothing else.
func (x *exits) leave(client netip.Addr, sinceNs uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	prefix, exit := x.plan.Main(client)
	if _, already := x.asking[prefix]; !prefix.IsValid() || already || x.health.Fit(exit, client) {
		return
	}
	x.asking[prefix] = asked{exit, sinceNs, time.Now().Add(askFor)}
	if !x.asks {
		x.asks = true
		x.running.Go(x.ask)
	}
}

// returns is the plan's part of comeBack. The caller has x.mu.
func (x *exits) returns(ails func(string, netip.Prefix) (ails, known bool), now time.Time) (changes []egress.Change) {
	for a, since := range x.aside {
		ails, known := ails(a.exit, a.prefix)
		if ails || !known && now.Sub(since) < unproven {
			continue
		}
		delete(x.aside, a)
		why := "is well for"
		if !known {
			why = "has rested, and nobody is there to prove it, for"
		}
		x.say(fmt.Sprintf("%s %s %v: it is back in the main table", called(a.exit), why, a.prefix))
		changes = append(changes, x.plan.Restore(a.prefix, a.exit)...)
	}
	return changes
}

// comeBack puts the best path back where its exit is proven for a client, or where it has rested and no client is left to prove it.
func (x *exits) comeBack(now time.Time) {
	var patients []egress.Patient
	x.mu.Lock()
	some := len(x.aside) > 0
	if some {
		patients = x.health.Patients()
	}
	x.mu.Unlock()
	if some {
		ails := egress.Ails(patients) // as it was a moment ago: what changes meanwhile waits for the next time
		x.tell(x.change(func() []egress.Change { return x.returns(ails, now) }))
	}
}
