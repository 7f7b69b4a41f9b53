package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

const (
	// stayFor is how long a client stays with the exit chosen for its latency: a new one needs this long to show its own queue.
	stayFor = 3 * time.Second
	// capFor is the least time between two changes of an exit that is at its cap: each moves all connections.
	capFor = 30 * time.Second
	// relief is how far below its cap an exit must be to take more again.
	relief = 0.9
)

// choice is what is decided for connections within what the plan allows. It is guarded by exits.mu.
type choice struct {
	services  services
	terms     map[string]egress.Exit // cost and cap of each exit, by its name; of the empty one those of an exit that is none of the configuration
	mostMoved float64                // percent of what this host sends that may leave by other exits than the best path's
	worth     *egress.Worth
	holdouts  map[egress.Strategy][]float64 // see Egress.holdouts
	full      map[string]bool               // exits that carry as much as they may
	trials    map[netip.Addr]string         // that go on, by client: the exit left out now; empty: none is
	moved     bool                          // so much leaves by other exits than the best path's that new connections begin without them
	turned    map[string]time.Time          // when they became so, or were no longer
	quickest  map[netip.Addr]quickExit
}

func newChoice(c *Egress, worth *egress.Worth) choice {
	ch := choice{worth: worth, full: map[string]bool{}, turned: map[string]time.Time{}, trials: map[netip.Addr]string{}, quickest: map[netip.Addr]quickExit{}}
	ch.services = services{numbers: map[uint64]uint32{}, byCgroup: map[uint32]uint32{}}
	ch.become(c)
	return ch
}

// restart compares anew under each strategy whose groups have other shares of the connections from now on, also if it has none before or then.
func restart(worth *egress.Worth, before, now map[egress.Strategy][]float64, at time.Time) {
	for _, s := range egress.Strategies() {
		if !slices.Equal(before[s], now[s]) {
			worth.Restart(s, at)
		}
	}
}

// become takes in what a configuration says of services, costs, caps and shares.
func (ch *choice) become(c *Egress) {
	ch.services.become(c)
	holdouts := c.holdouts()
	if ch.holdouts != nil {
		restart(ch.worth, ch.holdouts, holdouts, time.Now())
	}
	ch.holdouts = holdouts
	terms, dearest := map[string]egress.Exit{}, 0
	for _, e := range c.Exits {
		dearest = max(dearest, e.Cost)
		if was, is := ch.terms[e.Name]; is && was.Cost != e.Cost {
			ch.worth.Anew(egress.Cheap)
		}
		if terms[e.Name] = e; e.CapMbps != ch.terms[e.Name].CapMbps { // whether it is reached is to be seen
			delete(ch.full, e.Name)
			delete(ch.turned, e.Name)
		}
	}
	terms[""] = egress.Exit{Cost: dearest} // what nobody gave a cost is not for free
	ch.terms, ch.mostMoved = terms, c.MovedPercent
	ch.moved = ch.moved || c.MovedPercent == 0
}

// quickExit is the exit a client has under the strategy latency.
type quickExit struct {
	exit string
	at   time.Time
}

// notCarrying is why an exit is spared, in words.
var notCarrying = map[egress.Why]string{
	egress.Loses: "it loses too many of this client's packets",
	egress.Late:  "what it carries for this client comes late, and the others carry it all",
}

// spared says why an exit is not to carry data for a client while another can; empty: nothing is against it. The caller has x.mu.
func (x *exits) spared(exit string, client netip.Addr) string {
	switch {
	case x.full[exit]:
		return fmt.Sprintf("it carries as much as its cap_mbps of %g allows", x.terms[exit].CapMbps)
	case x.outages.Out(exit):
		return "it is out: nothing that is sent through it arrives, whoever the client is"
	}
	return notCarrying[x.brownouts.Spared(exit, client)]
}

// candidates are the exits that reach the client and do not fail it, and the best path's, whatever that is. The caller has x.mu.
func (x *exits) candidates(client netip.Addr, ways []egress.Way, main string) []egress.Candidate {
	out := make([]egress.Candidate, 0, len(ways)+1)
	add := func(exit string) {
		if !x.health.Fit(exit, client) {
			return
		}
		out = append(out, egress.Candidate{Exit: exit, RTTUs: x.traffic.RTTUs(exit, client), Cost: x.terms[exit].Cost, Spared: x.spared(exit, client) != ""})
	}
	for _, w := range ways {
		if _, ok := x.byExit[w.Exit][client.Is4()]; ok || w.Exit == main {
			add(w.Exit)
		}
	}
	if main == "" { // else it is among the ways, or was withdrawn under a connection that began on its address
		add(main)
	}
	return out
}

// reaches says whether packets that leave by the exit of a connection's own address may go to the client: one that has withdrawn its routes takes none from it.
func reaches(exit string, ways []egress.Way) bool {
	return exit == "" || slices.ContainsFunc(ways, func(w egress.Way) bool { return w.Exit == exit })
}

// free says whether an exit is among the candidates and need not be spared.
func free(all []egress.Candidate, exit string) bool {
	return slices.ContainsFunc(all, func(c egress.Candidate) bool { return c.Exit == exit && !c.Spared })
}

// carriers says which exits carry data of a service to a client, and in words why not all do. The caller has x.mu.
func (x *exits) carriers(client netip.Addr, ways []egress.Way, main string, s egress.Strategy) (carry map[string]bool, why string) {
	all := x.candidates(client, ways, main)
	if x.worth.One(ways[0].Prefix, s) && free(all, main) {
		return map[string]bool{main: true}, "the strategy was measured and does no better than the best path (plait egress prefixes)"
	}
	was := x.quickest[client].exit
	if s == egress.Latency && free(all, was) {
		return map[string]bool{was: true}, "strategy latency"
	}
	carry, why = s.Carriers(all, was), fmt.Sprintf("strategy %s", s)
	if s != egress.Steady && len(x.dropShared(client, main, carry)) > 0 {
		why += "; exits that share a bottleneck on the way to this client are one to it"
	}
	return carry, why
}

// reachable is what the plan says to the path manager, less what does not bring packets to the client, and in the roles the service wants.
func (x *exits) reachable(p mptcp.Peer) []mptcp.ExitAddress {
	x.mu.Lock()
	defer x.mu.Unlock()
	own, now := p.Own.Addr(), time.Now()
	if x.flows != nil {
		if err := x.flows.watch(own); err != nil {
			x.logf("%v", err)
		}
	}
	main, service, ways := x.exitOf(own, p.Client), x.services.of(p), x.plan.Reachable(p.Client)
	if len(ways) == 0 {
		return nil
	}
	fit, out := x.health.Fit(main, p.Client) && reaches(main, ways), heldOut(p.Token, service.HoldoutPercent)
	alone := fit && !p.Offered && (x.moved || out)
	if x.group(p, out, alone); alone {
		return nil
	}
	carry, _ := x.carriers(p.Client, ways, main, service.Strategy)
	if _, chosen := x.quickest[p.Client]; service.Strategy == egress.Latency && !chosen {
		for exit := range carry {
			x.quickest[p.Client] = quickExit{exit, now}
		}
	}
	var all []mptcp.ExitAddress
	for _, way := range ways {
		if a, ok := x.byExit[way.Exit][p.Client.Is4()]; ok && x.health.Fit(way.Exit, p.Client) {
			all = append(all, mptcp.ExitAddress{Addr: a, Same: way.Exit == main, Backup: !carry[way.Exit]})
		}
	}
	return append(all, mptcp.ExitAddress{Addr: own, Avoid: !fit, Backup: fit && !carry[main]})
}

// fill finds exits that carry as much as they may, or no longer do. The caller has x.mu.
func (x *exits) fill(now time.Time) (changed bool) {
	traffic := x.traffic.Exits()
	for _, exit := range x.config.Exits { // in their order, not the map's
		e := x.terms[exit.Name]
		mbps, was := traffic[e.Name].GoodputBps/1e6, x.full[e.Name]
		switch {
		case e.CapMbps == 0 || now.Sub(x.turned[e.Name]) < capFor:
		case !x.full[e.Name] && mbps > e.CapMbps:
			x.full[e.Name], changed = true, true
			x.say(fmt.Sprintf("exit %s carries %.1f Mbit/s, its cap is %g: it stands by where there is another", e.Name, mbps, e.CapMbps))
		case x.full[e.Name] && mbps < relief*e.CapMbps:
			delete(x.full, e.Name)
			changed = true
			x.say(fmt.Sprintf("exit %s carries %.1f Mbit/s: below its cap of %g again", e.Name, mbps, e.CapMbps))
		}
		if x.full[e.Name] != was {
			x.turned[e.Name] = now
		}
	}
	share, most := x.traffic.MovedPercent(), x.mostMoved
	switch {
	case !x.moved && share > most:
		x.moved = true
		x.say(fmt.Sprintf("%.0f %% leaves by other exits than the best path's, allowed are %g: new connections begin without them", share, most))
	case x.moved && share < relief*most:
		x.moved = false
		x.say(fmt.Sprintf("%.0f %% leaves by other exits than the best path's: new connections get them again", share))
	}
	return changed
}

// requicken finds the clients that are to have another exit for their latency.
func (x *exits) requicken(now time.Time) (clients []netip.Addr) {
	x.mu.Lock()
	all := slices.Collect(maps.Keys(x.quickest))
	x.mu.Unlock()
	for _, client := range all {
		x.mu.Lock() // for one client at a time: who judges failures must not wait for all
		if x.turn(client, now) {
			clients = append(clients, client)
		}
		x.mu.Unlock()
	}
	return clients
}

// rttMs is 0 where nothing was measured.
func (x *exits) rttMs(exit string, client netip.Addr) float64 {
	return x.traffic.RTTUs(exit, client) / 1000
}

// turn gives a client another exit for its latency, if that is due. The caller has x.mu.
func (x *exits) turn(client netip.Addr, now time.Time) (turned bool) {
	was, main, ways := x.quickest[client], x.plan.MainExit(client), x.plan.Reachable(client)
	if len(ways) == 0 || x.traffic.RTTUs(was.exit, client) == 0 && now.Sub(was.at) > time.Minute {
		delete(x.quickest, client) // its connections are long gone
		return false
	}
	all := x.candidates(client, ways, main)
	if now.Sub(was.at) < stayFor && free(all, was.exit) {
		return false
	}
	for exit := range egress.Latency.Carriers(all, was.exit) {
		if exit != was.exit {
			x.quickest[client] = quickExit{exit, now}
			turned = true
			x.say(fmt.Sprintf("exit %s is quicker to %v now (%.1f ms; %s %.1f ms): it carries what is for latency", exit, client, x.rttMs(exit, client), was.exit, x.rttMs(was.exit, client)))
		}
	}
	return turned
}

// Why an exit is of little use to a client, and why it is again, by whether data waits for other exits.
var (
	little = map[bool]string{true: "brings little", false: "the others take all there is to send"}
	needed = map[bool]string{true: ": data waits for the others"}
)

// spare finds the clients for whom exits lose too much, or no longer do.
func (x *exits) spare(now time.Time) (clients []netip.Addr) {
	spared, over := x.brownouts.Look(x.traffic.Loads(), now)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, w := range spared {
		clients = append(clients, w.Client)
		x.say(fmt.Sprintf("exit %s loses too many packets to %v and %s (of %.0f segments %.0f again in the last look): it stands by for this client", w.Exit, w.Client, little[w.Waits], w.Sent, w.Resent))
	}
	for _, w := range over {
		clients = append(clients, w.Client)
		x.say(fmt.Sprintf("exit %s carries for %v again%s", w.Exit, w.Client, needed[w.Waits]))
	}
	return clients
}

// reconsider looks at what was decided, with what was measured since.
func (x *exits) reconsider(ctx context.Context, now time.Time) {
	x.mu.Lock()
	all := x.fill(now)
	var prefixes []netip.Prefix
	for _, d := range x.worth.Tick(now) {
		prefixes = append(prefixes, d.Prefix)
		x.say(inWords(d))
	}
	clients := x.services.newcomers()
	x.mu.Unlock()
	clients = slices.Concat(clients, x.spare(now), x.share(ctx, now), x.requicken(now))
	if all {
		x.mptcp.Changed()
	} else if len(prefixes) > 0 {
		x.mptcp.Changed(prefixes...)
	}
	x.mptcp.Act(clients...)
}

func inWords(d egress.Decision) string {
	if d.Why == "" {
		return fmt.Sprintf("%v: strategy %s is tried again", d.Prefix, d.Strategy)
	}
	ratio, low, high := d.Ratio()
	return fmt.Sprintf("%v: strategy %s is %s than the best path alone: a byte takes %.2f times as long (%.2f to %.2f), of %.0f and %.0f samples; the other exits stand by for %v",
		d.Prefix, d.Strategy, d.Why, ratio, low, high, d.Managed.Samples, d.HeldOut.Samples, d.Rest)
}
