package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

const (
	// trialsAtOnce is how many clients are tried at a time: each wants some lookups and commands a second for every connection of its client.
	trialsAtOnce = 16
	// trialFlows is how many subflows of a client are looked at.
	trialFlows = 256
	// emptied is how many half round trips an exit's sockets may take to empty.
	emptied = 20
)

// dropShared leaves one of the exits that share a bottleneck, and says which it left out, and why. The best path's stays in any case, main, which is empty if its exit is none of
// the configuration. The caller has x.mu.
func (x *exits) dropShared(client netip.Addr, main string, carry map[string]bool) (dropped map[string]string) {
	dropped = map[string]string{}
	drop := func(exit, why string) {
		if exit != "" && exit != main && carry[exit] && len(carry) > 1 {
			delete(carry, exit)
			dropped[exit] = why
		}
	}
	drop(x.trials[client], "it is left out for a moment, to see whether it shares a bottleneck with the best path's exit")
	for _, exit := range slices.Sorted(maps.Keys(carry)) { // in an order: of two that share with each other one is left
		with, which := x.shares.Shared(exit, client), exit
		if with == "" || !carry[with] || !carry[exit] {
			continue
		}
		if exit == main { // it was not when that was found
			with, which = exit, with
		}
		drop(which, "it shares a bottleneck with exit "+with+" on the way to this client")
	}
	return dropped
}

// share finds the clients for whom exits no longer count as one, and begins trials.
func (x *exits) share(ctx context.Context, now time.Time) (clients []netip.Addr) {
	x.mu.Lock()
	room := trialsAtOnce - len(x.trials) // nobody else takes of it
	x.mu.Unlock()
	tried, over := x.shares.Look(x.traffic.Loads(), now, room)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, client := range over {
		x.say(fmt.Sprintf("all exits carry for %v again, to see whether they still share a bottleneck", client))
	}
	for _, p := range tried {
		if _, going := x.trials[p.Client]; going {
			x.shares.Unlike(p, now)
			continue
		}
		x.trials[p.Client] = ""
		x.running.Go(func() { x.try(ctx, p) })
	}
	return over
}

// did is what a flow had done, and its smoothed round-trip time then.
type did struct {
	bytes uint64 // acknowledged
	rttUs uint32
}

// progress is what a client's flows through an exit had done.
type progress struct {
	flows   map[mptcp.Ends]did
	waits   bool // data waits for one of them
	waiting bool // for an answer, what one of them has sent
}

// since is how many bytes were acknowledged since, on flows that there were before, and their round-trip time, the mean over these bytes: an idle flow has that of its last data. Without any both are 0.
func (p progress) since(before progress) (bytes, rttUs float64) {
	for ends, now := range p.flows {
		if was, there := before.flows[ends]; there && now.bytes > was.bytes {
			n := float64(now.bytes - was.bytes)
			bytes += n
			rttUs += (float64(now.rttUs) - rttUs) * n / bytes
		}
	}
	return bytes, rttUs
}

// progress of the client's flows through an exit.
func (x *exits) progress(client netip.Addr, exit string) progress {
	p := progress{flows: map[mptcp.Ends]did{}}
	for _, s := range x.mptcp.Flows(client, trialFlows) {
		ends := s.Ends()
		x.mu.Lock()
		by := x.exitOf(ends.Local.Addr(), client)
		x.mu.Unlock()
		if stats, ok := x.flows.stats(ends); ok && by == exit {
			p.flows[ends] = did{stats.AckedBytes, stats.SrttUs}
			p.waits = p.waits || stats.WaitingAtNs != 0
			p.waiting = p.waiting || stats.UnansweredAtNs != 0
		}
	}
	return p
}

// sleep ends early with ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watch says whether the round-trip times of two exits move alike.
func (x *exits) watch(ctx context.Context, t *egress.Trial, p egress.Pair) (alike bool) {
	look := func() [2]progress { return [2]progress{x.progress(p.Client, p.With), x.progress(p.Client, p.Exit)} }
	var rttUs [2]float64
	before := look()
	for again := egress.LikeEvery; again > 0; {
		if sleep(ctx, again); ctx.Err() != nil {
			return false
		}
		now := look()
		for i := range now {
			if bytes, us := now[i].since(before[i]); bytes > 0 { // else it is as it was
				rttUs[i] = us
			}
			if len(now[i].flows) == 0 || rttUs[i] == 0 {
				return false
			}
		}
		before = now
		again, alike = t.Watch(rttUs[0], rttUs[1], now[0].waits && now[1].waits)
	}
	return alike
}

// part is one part of a trial. Without data that waits it tells nothing: the exit that goes on would only take over what the other had.
func (x *exits) part(ctx context.Context, t *egress.Trial, p egress.Pair) (rate float64) {
	x.mu.Lock()
	x.trials[p.Client] = map[bool]string{true: p.Exit}[t.Alone()]
	x.mu.Unlock()
	x.mptcp.Act(p.Client)
	for i := 0; t.Alone() && i < emptied && x.progress(p.Client, p.Exit).waiting; i++ { // what its sockets have still leaves
		sleep(ctx, t.RTT()/2)
	}
	sleep(ctx, 2*t.RTT())
	before, began := x.progress(p.Client, p.With), time.Now()
	sleep(ctx, t.Measure())
	after := x.progress(p.Client, p.With)
	if !before.waits && !after.waits || ctx.Err() != nil {
		return 0
	}
	brought, _ := after.since(before)
	return brought / time.Since(began).Seconds()
}

// try finds out whether two exits share a bottleneck on the way to a client, which takes some seconds, and acts on it.
func (x *exits) try(ctx context.Context, p egress.Pair) {
	t := &egress.Trial{}
	if !x.watch(ctx, t, p) {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.trials, p.Client)
		x.shares.Unlike(p, time.Now())
		return
	}
	over, shared := false, false
	for !over {
		over, shared = t.Add(x.part(ctx, t, p))
	}
	x.mu.Lock()
	delete(x.trials, p.Client)
	x.shares.Found(p, shared, time.Now())
	if len(t.Times) > 0 {
		x.say(found(p, t.Times, shared))
	}
	x.mu.Unlock()
	x.mptcp.Act(p.Client) // a trial that told nothing may have left the exit out, too
}

func found(p egress.Pair, times []float64, shared bool) string {
	each := make([]string, len(times))
	for i, n := range times {
		each[i] = fmt.Sprintf("%.2f", n)
	}
	what := fmt.Sprintf("on the way to %v: without %s, %s brought %s times as much", p.Client, p.Exit, p.With, strings.Join(each, ", "))
	if shared {
		return fmt.Sprintf("exits %s and %s share a bottleneck %s; %s stands by for this client", p.With, p.Exit, what, p.Exit)
	}
	return fmt.Sprintf("exits %s and %s show no bottleneck that they share %s", p.With, p.Exit, what)
}
