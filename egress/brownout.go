package egress

import (
	"net/netip"
	"time"
)

const (
	// bearable is the share of segments sent again that an exit may have for as long as it likes: TCP's own overruns of queues stay below it.
	bearable = 0.02
	// tooMuch is how many segments more than that tell that it is no chance, and atOnce how many of them one look can add: a slow start that overran a
	// queue is over at the next look.
	tooMuch, atOnce = 8, 4
	// clearly is how many times the loss of the exit that brings most an exit must lose: what all of them lose is lost behind them.
	clearly = 3
	// smallShare of what another exit brings: less is not worth what waiting for its repetitions costs the rest.
	smallShare = 0.25
	// firstSpell is how long an exit is spared, then twice as long each time it is no better soon after.
	firstSpell = 10 * time.Second
	mostSpell  = 5 * time.Minute
)

// WayLoad is what a client's flows through an exit did between two looks.
type WayLoad struct {
	Exit                string
	Client              netip.Addr
	Bytes, Sent, Resent float64
}

// brownout is the sum of what was sent again beyond what is bearable (CUSUM, Page 1954), and the spell for which the exit is spared, or was.
type brownout struct {
	excess float64
	spared bool
	until  time.Time
	spell  time.Duration
	last   time.Time // when something was sent
}

// Brownouts finds exits that bring packets to a client, but lose so many that they hold up the rest. It is for one goroutine at a time.
type Brownouts map[wayTo]*brownout

// Spared says whether the exit is to carry nothing for the client while there is another.
func (b Brownouts) Spared(exit string, client netip.Addr) bool {
	w := b[wayTo{exit, client}]
	return w != nil && w.spared
}

// most is the most that another exit brought each client.
func most(loads []WayLoad) map[netip.Addr]WayLoad {
	out := map[netip.Addr]WayLoad{}
	for _, l := range loads {
		if l.Bytes > out[l.Client].Bytes {
			out[l.Client] = l
		}
	}
	return out
}

// spare begins a spell.
func (w *brownout) spare(now time.Time) {
	w.spell *= 2
	if now.Sub(w.until) > relapse {
		w.spell = 0
	}
	w.spell = min(max(w.spell, firstSpell), mostSpell)
	w.spared, w.until, w.excess = true, now.Add(w.spell), 0
}

// Look takes in what was done since the look before, and returns the ways that are spared from now on, and those that are no longer.
func (b Brownouts) Look(loads []WayLoad, now time.Time) (spared, over []WayLoad) {
	best := most(loads)
	for _, l := range loads {
		k := wayTo{l.Exit, l.Client}
		if b[k] == nil {
			b[k] = &brownout{}
		}
		w := b[k]
		w.last = now
		w.excess = max(0, w.excess+min(l.Resent-bearable*l.Sent, atOnce))
		if top := best[l.Client]; w.excess >= tooMuch && !w.spared && l.Bytes < smallShare*top.Bytes && l.Resent*top.Sent > clearly*top.Resent*l.Sent {
			w.spare(now)
			spared = append(spared, l)
		}
	}
	for k, w := range b {
		if w.spared && !now.Before(w.until) {
			w.spared, w.excess = false, 0
			over = append(over, WayLoad{Exit: k.exit, Client: k.client})
		}
		if !w.spared && now.Sub(w.until) > relapse && (w.excess == 0 || now.Sub(w.last) > relapse) {
			delete(b, k)
		}
	}
	return spared, over
}
