package egress

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// bearable is the share of segments sent again that an exit may have for as long as it likes: TCP's own overruns of queues stay below it. Where that
	// is not what loses them, it is little.
	bearable, bearableIdle = 0.02, 0.005
	// tooMuch is how many segments more than that tell that it is no chance, and atOnce how many of them one look can add: a slow start that overran a
	// queue is over at the next look.
	tooMuch, atOnce = 8, 4
	// clearly is how many times the loss of the exit that brings most an exit must lose: what all of them lose is lost behind them.
	clearly = 3
	// smallShare of what another exit brings: less is not worth what waiting for its repetitions costs the rest. Where no data waits for another exit,
	// no share is: the others carry it all.
	smallShare = 0.25
	// firstSpell is how long an exit is spared, then twice as long each time it is no better soon after.
	firstSpell = 10 * time.Second
	mostSpell  = 5 * time.Minute
	// settling is how long data may wait for the others when an exit begins to stand by: a congestion control needs as long to find out that it may send twice as fast.
	settling = 1500 * time.Millisecond
)

// WayLoad is what a client's flows through an exit did between two looks.
type WayLoad struct {
	Exit                string
	Client              netip.Addr
	Bytes, Sent, Resent float64
	// RTTUs is their round-trip time, LeastRTTUs the shortest they ever had.
	RTTUs, LeastRTTUs float64
	// Best says that it is the exit of the best path.
	Best bool
	// Waits says that one of them had more to send than the exit took, all the time.
	Waits bool
}

// idle says whether a client needs nothing of the exit: no data waits for other ones, the one that brings most is not much slower, and no queue is on the way that what is
// lost may have overrun.
func (l *WayLoad) idle(top WayLoad, waits bool) bool {
	return !waits && !quicker(l.LeastRTTUs, top.LeastRTTUs) && !quicker(l.LeastRTTUs, l.RTTUs)
}

// brownout is the sum of what was sent again beyond what is bearable (CUSUM, Page 1954), and the spell for which the exit is spared, or was.
type brownout struct {
	excess float64
	spared bool
	idle   bool // because no data waited for the other exits: no longer when some does
	until  time.Time
	spell  time.Duration
	needed time.Time // until then it is spared only if it brings little: data waited for the others without it
	last   time.Time // when something was sent
}

// Why an exit is spared.
type Why string

const (
	// Loses is for one that loses too many packets.
	Loses Why = "loss"
	// Late is for one that brings little beside others, and much later.
	Late Why = "late"
)

// Brownouts knows the exits that bring packets to a client, but lose so many, or so late, that they hold up the rest. Who looks, or says that an exit is late, waits for
// another who does; any may ask, who then waits for some microseconds.
type Brownouts struct {
	looking sync.Mutex // guards ways
	ways    map[wayTo]*brownout

	mu     sync.RWMutex // guards what follows
	spared map[wayTo]Why
	losing map[wayTo]losing
}

// losing is what an exit has lost of what a client was sent.
type losing struct {
	looks int     // one after the other up to the last, in which it was much
	share float64 // in the last
}

// NewBrownouts has found none yet.
func NewBrownouts() *Brownouts {
	return &Brownouts{ways: map[wayTo]*brownout{}, spared: map[wayTo]Why{}}
}

// Spared says why the exit is to carry nothing for the client while there is another; empty: it may.
func (b *Brownouts) Spared(exit string, client netip.Addr) Why {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.spared[wayTo{exit, client}]
}

// LosesAnyway says whether another exit, too, loses much of what the client is sent, and this one not clearly more: then it is lost behind them all. One look does not tell, for a slow start that overran a queue is over at the next.
func (b *Brownouts) LosesAnyway(exit string, client netip.Addr, others []Exit) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	own := b.losing[wayTo{exit, client}].share
	return slices.ContainsFunc(others, func(other Exit) bool {
		l := b.losing[wayTo{other.Name, client}]
		return other.Name != exit && l.looks > 1 && own <= clearly*l.share
	})
}

// note remembers which exits lose much. The caller has b.looking.
func (b *Brownouts) note(loads []WayLoad) {
	all := map[wayTo]losing{}
	for _, l := range loads {
		if k := (wayTo{l.Exit, l.Client}); l.Resent-bearable*l.Sent >= atOnce {
			all[k] = losing{b.losing[k].looks + 1, l.Resent / l.Sent}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.losing = all
}

// Clients counts those for whom an exit is spared, by the reason and exit.
func (b *Brownouts) Clients() map[Why]map[string]int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := map[Why]map[string]int{Loses: {}, Late: {}}
	for k, why := range b.spared {
		out[why][k.exit]++
	}
	return out
}

// tell has others know whether a way is spared, and if it is, why.
func (b *Brownouts) tell(k wayTo, why Why) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ways[k].spared {
		b.spared[k] = why
	} else {
		delete(b.spared, k)
	}
}

// Late says that the exit holds up a connection to the client, which others carry whole (see Slow): it is spared until data waits for those. It returns whether that is new. It is not
// if data waited for the others lately, without this one.
func (b *Brownouts) Late(exit string, client netip.Addr, now time.Time) bool {
	b.looking.Lock()
	defer b.looking.Unlock()
	k := wayTo{exit, client}
	w := b.of(k)
	if w.spared || now.Before(w.needed) {
		return false
	}
	w.last = now
	w.spare(now, true)
	b.tell(k, Late)
	return true
}

// of is what is known of a way. The caller has b.looking.
func (b *Brownouts) of(k wayTo) *brownout {
	w := b.ways[k]
	if w == nil {
		w = &brownout{}
		b.ways[k] = w
	}
	return w
}

// beside is the most that another exit brought the client of a way, and whether data waits for any other.
func beside(loads []WayLoad, exit string) (top WayLoad, waits bool) {
	for _, l := range loads {
		if l.Exit == exit {
			continue
		}
		waits = waits || l.Waits
		if l.Bytes > top.Bytes {
			top = l
		}
	}
	return top, waits
}

// spare begins a spell. One that is idle costs nothing, for it ends when data waits for other exits.
func (w *brownout) spare(now time.Time, idle bool) {
	switch {
	case idle:
		w.spell = mostSpell
	case now.Sub(w.until) > relapse:
		w.spell = firstSpell
	default:
		w.spell = min(max(2*w.spell, firstSpell), mostSpell)
	}
	w.spared, w.idle, w.until, w.excess = true, idle, now.Add(w.spell), 0
}

// lost takes in what was lost, and says whether that is too much; idle: also for an exit that brings much.
func (w *brownout) lost(l, top WayLoad, idle bool, now time.Time) bool {
	limit := bearable
	if idle {
		limit = bearableIdle
	}
	w.last = now
	w.excess = max(0, w.excess+min(l.Resent-limit*l.Sent, atOnce))
	return w.excess >= tooMuch && (idle || l.Bytes < smallShare*top.Bytes) && l.Resent*top.Sent > clearly*top.Resent*l.Sent
}

// Look takes in what was done since the look before, and returns the ways that are spared from now on, and those that are no longer. Waits says there that the
// others do not take all there is to send.
func (b *Brownouts) Look(loads []WayLoad, now time.Time) (spared, over []WayLoad) {
	b.looking.Lock()
	defer b.looking.Unlock()
	b.note(loads)
	byClient := map[netip.Addr][]WayLoad{}
	for _, l := range loads {
		byClient[l.Client] = append(byClient[l.Client], l)
	}
	for _, l := range loads {
		k := wayTo{l.Exit, l.Client}
		w := b.of(k)
		top, waits := beside(byClient[l.Client], l.Exit)
		idle := l.idle(top, waits)
		if w.lost(l, top, idle, now) && !w.spared && (!idle || !now.Before(w.needed)) {
			w.spare(now, idle)
			b.tell(k, Loses)
			l.Waits = !idle
			spared = append(spared, l)
		}
	}
	for k, w := range b.ways {
		_, waits := beside(byClient[k.client], k.exit)
		needed := w.idle && waits && w.until.Sub(now) < w.spell-settling
		if w.spared && (needed || !now.Before(w.until)) {
			w.spared, w.excess = false, 0
			b.tell(k, "")
			if needed {
				w.needed, w.until, w.spell = now.Add(mostSpell), now, 0
			}
			over = append(over, WayLoad{Exit: k.exit, Client: k.client, Waits: needed})
		}
		if !w.spared && now.Sub(w.until) > relapse && !now.Before(w.needed) && (w.excess == 0 || now.Sub(w.last) > relapse) {
			delete(b.ways, k)
		}
	}
	return spared, over
}
