package egress

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Hold-down of an exit that failed a client: so long it is not offered to the client again, then twice as long each time it fails again. What holds longer than the
// most is forgotten instead, and the exit taken for well: the next connection will tell.
const (
	firstHold = 5 * time.Second
	mostHold  = 5 * time.Minute
	// betHold is that of an exit left on a bet.
	betHold = time.Second
	// noBets is how long no bet is made on a client for whom one was lost.
	noBets = 10 * time.Minute
	// probeFor is how long a client may take to open a subflow to an exit that is offered again. That handshake is the probe: until it is over no data goes there.
	probeFor = 15 * time.Second
	// cutEvery is how often flows of an exit to a client are closed, at the most, for holding up their connection: each time all that the connection has on the way is sent again, and a
	// window begins anew.
	cutEvery = time.Second
	// relapse is how long after its return a failure counts as the same one.
	relapse = time.Minute
)

// Flow is what is known of a TCP flow at one time. Times are of one clock; the zero time: never, or not now.
type Flow struct {
	// Exit it leaves through; empty: that of the best path, which is none of the configuration.
	Exit string
	// Stalled is since when what was sent is overdue: not answered for longer than round trips explain.
	Stalled time.Time
	// Stuck: it holds up its connection. The client waits for data that this flow was given, and that was lost on it, perhaps more than once; nothing says when it is sent again.
	Stuck bool
	// Silent is since when something waits for an answer.
	Silent time.Time
	// Heard is when the last answer came.
	Heard time.Time
}

// leastIdle is how long a flow must be silent, or three times as long as was patience with it, before an exit that has nothing on the way counts as well: phones
// and radios sleep, and the first packets after a pause wait for them.
const leastIdle = 200 * time.Millisecond

// fresh is how old a sign of life may be, when a stall is found, to show that the way back and the client are well.
const fresh = 10 * time.Millisecond

// stall is what the stalled flows of an exit say.
type stall struct {
	at     time.Time     // when the first one was found
	waited time.Duration // for the one that was waited for least
	long   bool          // one has been silent for so long that an idle exit counts as well
}

// doubts says whether another flow of the exit was heard not longer ago than a stalled one was waited for: the exit was alive by then, and the other may be heard again, or stall too.
// A line of the client's own that loses much silences one flow of many now and then.
func (s stall) doubts(f Flow, now time.Time) bool { return now.Sub(f.Heard) < s.waited }

func stalls(flows []Flow, now time.Time) map[string]stall {
	out := map[string]stall{}
	for _, f := range flows {
		if f.Stalled.IsZero() {
			continue
		}
		s, ok := out[f.Exit]
		if !ok || f.Stalled.Before(s.at) {
			s.at = f.Stalled
		}
		if waited := f.Stalled.Sub(f.Silent); !ok || waited < s.waited {
			s.waited = waited
		}
		s.long = s.long || now.Sub(f.Silent) >= max(leastIdle, 3*f.Stalled.Sub(f.Silent))
		out[f.Exit] = s
	}
	return out
}

// Verdict is what one client's flows say together.
type Verdict struct {
	// Exits have failed: they have stalled flows and none that was heard since, and there is an exit not known to fail.
	Exits []string
	// Lost are stalled flows, by their index, of exits that are well: on a dead one of parallel links, or a route has moved away under them.
	Lost []int
	// Stuck are flows, by their index, that hold up what other exits bring.
	Stuck []int
	// Silent: all exits have failed, which may also be the way back they share, or the client.
	Silent bool
	// Unsure: there are flows still waiting for an answer that would decide, or heard so lately that the next one may.
	Unsure bool
}

// lostAfter is how long a flow of an exit that is well may stall: repetitions can be lost, too, and TCP's timer has run out several times by then.
const lostAfter = time.Second

// stuck says which flows are, while another exit has brought packets before: what their way has lost is sent again by that one long before TCP's timer, 200 ms at the least, runs out.
func stuck(flows []Flow) (out []int) {
	for i, f := range flows {
		if f.Stuck && slices.ContainsFunc(flows, func(g Flow) bool {
			return g.Exit != f.Exit && g.Stalled.IsZero() && !g.Stuck && !g.Heard.IsZero()
		}) {
			out = append(out, i)
		}
	}
	return out
}

// Judge looks at the flows of one connection. The client's other flows can show that an exit is well. Where all are silent alike, it is not the exits.
func Judge(flows, others []Flow, now time.Time) (v Verdict) {
	v.Stuck = stuck(flows)
	failing, well, doubted := stalls(flows, now), map[string]bool{}, map[string]bool{}
	for i, f := range slices.Concat(flows, others) {
		s, stalls := failing[f.Exit]
		switch {
		case !stalls || !f.Stalled.IsZero():
		case f.Heard.After(s.at):
			well[f.Exit] = true
		case s.doubts(f, now) || i < len(flows) && !f.Silent.IsZero():
			doubted[f.Exit] = true
		}
	}
	for exit := range doubted {
		if !well[exit] {
			v.Unsure = true
			delete(failing, exit)
		}
	}
	last, long := time.Time{}, true
	for i, f := range flows {
		s, fails := failing[f.Exit]
		switch {
		case well[f.Exit] && !f.Stalled.IsZero():
			if now.Sub(f.Stalled) >= lostAfter {
				v.Lost = append(v.Lost, i)
			}
		case fails && !well[f.Exit] && !slices.Contains(v.Exits, f.Exit):
			v.Exits = append(v.Exits, f.Exit)
			if s.at.After(last) {
				last = s.at
			}
			long = long && s.long
		}
	}
	for _, f := range flows {
		if slices.Contains(v.Exits, f.Exit) || !f.Stalled.IsZero() {
			continue
		}
		if f.Silent.IsZero() && long || f.Heard.After(last.Add(-fresh)) {
			return v
		}
		v.Unsure = true
	}
	return Verdict{Stuck: v.Stuck, Silent: len(v.Exits) > 1 && !v.Unsure, Unsure: v.Unsure}
}

// wayTo is an exit seen from a client.
type wayTo struct {
	exit   string
	client netip.Addr
}

type ailment struct {
	until time.Time // of the hold-down, of the probe, or of what is remembered of it
	hold  time.Duration
	bet   bool // the last hold-down was that of a bet
	state ailmentState
}

type ailmentState uint8

const (
	held ailmentState = iota
	probed
	recovered
)

// Health remembers which exits failed which clients. It is for one goroutine at a time.
type Health struct {
	ways map[wayTo]*ailment
	lost map[netip.Addr]time.Time // when bets on a client may be made again
	cut  map[wayTo]time.Time      // when flows may be cut again
}

// NewHealth returns the health of exits that have never failed.
func NewHealth() *Health {
	return &Health{map[wayTo]*ailment{}, map[netip.Addr]time.Time{}, map[wayTo]time.Time{}}
}

// fail begins a hold-down. That of a bet is always the same, and makes none longer.
func (h *Health) fail(exit string, client netip.Addr, now time.Time, bet bool) bool {
	a, hold := h.ways[wayTo{exit, client}], firstHold
	switch {
	case a != nil && a.state == held:
		return false
	case bet:
		hold = betHold
	case a != nil:
		hold = min(2*a.hold, mostHold)
	}
	if a == nil {
		a = &ailment{}
		h.ways[wayTo{exit, client}] = a
	}
	a.hold, a.bet, a.state, a.until = max(a.hold, hold), bet, held, now.Add(hold)
	return true
}

// Fail says that packets to the client do not arrive through the exit. It returns whether that was not known.
func (h *Health) Fail(exit string, client netip.Addr, now time.Time) bool {
	return h.fail(exit, client, now, false)
}

// Bet is for an exit whose flows are as silent as those of all others: what they carry is sent again through another at once, in case the exit has failed in both
// directions and the way back of all leads over it. A bet is lost if the exit is found well soon after; then none is made on this client for a while.
func (h *Health) Bet(exit string, client netip.Addr, now time.Time) bool {
	return exit != "" && !now.Before(h.lost[client]) && h.fail(exit, client, now, true)
}

// Cut says whether a flow of the exit to the client may be closed now for holding up its connection.
func (h *Health) Cut(exit string, client netip.Addr, now time.Time) bool {
	w := wayTo{exit, client}
	if now.Before(h.cut[w]) {
		return false
	}
	h.cut[w] = now.Add(cutEvery)
	return true
}

// Fit says whether the exit may be offered to the client.
func (h *Health) Fit(exit string, client netip.Addr) bool {
	a := h.ways[wayTo{exit, client}]
	return a == nil || a.state != held
}

// Proven says that the client has opened a subflow through the exit.
func (h *Health) Proven(exit string, client netip.Addr, now time.Time) {
	if a := h.ways[wayTo{exit, client}]; a != nil && a.state == probed {
		a.state, a.until = recovered, now.Add(relapse)
		if a.bet {
			h.lost[client] = now.Add(noBets)
		}
	}
}

// Due are the clients for whom something is over that Tick ends; one may be there more than once.
func (h *Health) Due(now time.Time) (out []netip.Addr) {
	for w, a := range h.ways {
		if !now.Before(a.until) {
			out = append(out, w.client)
		}
	}
	return out
}

// Patient is a client for whom an exit was in question lately, or is.
type Patient struct {
	exit   string
	client netip.Addr
	well   bool
}

// Patients are all of them.
func (h *Health) Patients() []Patient {
	out := make([]Patient, 0, len(h.ways))
	for w, a := range h.ways {
		out = append(out, Patient{w.exit, w.client, a.state == recovered})
	}
	return out
}

// Ails returns what says whether an exit fails the clients within a prefix, all those for whom that was ever in question lately: one that is well proves the exit.
// Without such a client nothing is known.
func Ails(patients []Patient) func(exit string, within netip.Prefix) (ails, known bool) {
	all := map[string][]Patient{} // in order, for there are as many prefixes to ask for as clients
	for _, p := range patients {
		all[p.exit] = append(all[p.exit], p)
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b Patient) int { return a.client.Compare(b.client) })
	}
	return func(exit string, within netip.Prefix) (ails, known bool) {
		of := all[exit]
		first, _ := slices.BinarySearchFunc(of, within.Masked().Addr(), func(p Patient, a netip.Addr) int { return p.client.Compare(a) })
		for _, p := range of[first:] {
			if !within.Contains(p.client) {
				break
			}
			if p.well {
				return false, true
			}
			known = true
		}
		return known, known
	}
}

// Held counts the clients an exit is not offered to now, by exit.
func (h *Health) Held() map[string]int {
	out := map[string]int{}
	for w, a := range h.ways {
		if a.state == held {
			out[w.exit]++
		}
	}
	return out
}

// Tick ends what is over, and returns the clients for whom that changes what is offered. A client without connections cannot come back: its exits are forgotten.
func (h *Health) Tick(now time.Time, present func(netip.Addr) bool) (changed []netip.Addr) {
	maps.DeleteFunc(h.lost, func(_ netip.Addr, until time.Time) bool { return !now.Before(until) })
	maps.DeleteFunc(h.cut, func(_ wayTo, until time.Time) bool { return !now.Before(until) })
	for w, a := range h.ways {
		if now.Before(a.until) {
			continue
		}
		switch {
		case a.state == held:
			a.state, a.until = probed, now.Add(probeFor)
			changed = append(changed, w.client)
		case a.state == probed && a.hold < mostHold && present(w.client):
			h.Fail(w.exit, w.client, now)
			changed = append(changed, w.client)
		default:
			delete(h.ways, w)
		}
	}
	return changed
}
