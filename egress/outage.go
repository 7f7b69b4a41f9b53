package egress

import (
	"iter"
	"net/netip"
	"time"
)

// An exit that has failed clients in several networks, and brings nothing to anybody meanwhile, is out as a whole: those who have not found out yet need not.
const (
	// suspects are the networks in which it must have failed a client, within suspectFor: what one of them has in common with its neighbours dies with fewer.
	suspects   = 3
	suspectFor = 3 * time.Second
	// confirmFor is how long nobody may get anything through it after that; longer, up to the most, where a flow that was heard lately has such a round trip that its progress would be seen later.
	confirmFor     = 500 * time.Millisecond
	mostConfirmFor = 2 * time.Second
	// late is how much later than a round trip an answer may be seen: delayed ACKs take 40 ms, and looks are 100 ms apart.
	late = 150 * time.Millisecond
	// mostOut is how long an exit is out that nobody proves: then it is tried.
	mostOut = 5 * time.Minute
)

// outage is what is known of an exit as a whole.
type outage struct {
	witnesses map[netip.Prefix]time.Time // networks in which it failed a client, and when last
	out       bool
	proven    bool      // something has arrived since it is
	since     time.Time // it is, or is not any more
	hold      time.Duration
}

// Outages remembers which exits are out as a whole. It is for one goroutine at a time.
type Outages struct{ exits map[string]*outage }

// NewOutages knows of none.
func NewOutages() *Outages { return &Outages{map[string]*outage{}} }

// Witness says that the exit has failed a client in a network, and returns whether it has in so many that it may be out. The empty name stands for several exits, and is never.
func (o *Outages) Witness(exit string, network netip.Prefix, now time.Time) bool {
	if exit == "" || !network.IsValid() {
		return false
	}
	e := o.exits[exit]
	if e == nil {
		e = &outage{witnesses: map[netip.Prefix]time.Time{}}
		o.exits[exit] = e
	}
	e.witnesses[network] = now
	for n, at := range e.witnesses {
		if now.Sub(at) > suspectFor {
			delete(e.witnesses, n)
		}
	}
	return !e.out && len(e.witnesses) >= suspects
}

// Witnesses is in how many networks the exit has failed clients lately.
func (o *Outages) Witnesses(exit string) int {
	if e := o.exits[exit]; e != nil {
		return len(e.witnesses)
	}
	return 0
}

// Begin says that an exit is out, and returns for how long at least: as with [Health], twice as long as the last time if that was lately.
func (o *Outages) Begin(exit string, now time.Time) time.Duration {
	e := o.exits[exit]
	if e.hold == 0 || now.Sub(e.since) > relapse {
		e.hold = firstHold
	} else {
		e.hold = min(2*e.hold, mostHold)
	}
	e.out, e.since = true, now
	return e.hold
}

// Out says whether the exit is.
func (o *Outages) Out(exit string) bool {
	e := o.exits[exit]
	return e != nil && e.out
}

// Any says whether some exit is out.
func (o *Outages) Any() bool {
	for _, e := range o.exits {
		if e.out {
			return true
		}
	}
	return false
}

// Since is when the exit went out, and until when it is held; zero if it is not out.
func (o *Outages) Since(exit string) (since, until time.Time) {
	if e := o.exits[exit]; e != nil && e.out {
		return e.since, e.since.Add(e.hold)
	}
	return since, until
}

// Proven says that something has arrived through the exit since it went out. It comes back when it is not held any more.
func (o *Outages) Proven(exit string) {
	if e := o.exits[exit]; e != nil && e.out {
		e.proven = true
	}
}

// Over are the exits that are out no more: those that are proven, by true, and those that nobody has proven for so long that they are tried.
func (o *Outages) Over(now time.Time) map[string]bool {
	back := map[string]bool{}
	for exit, e := range o.exits {
		if held := now.Sub(e.since); e.out && held >= e.hold && (e.proven || held >= mostOut) {
			back[exit] = e.proven
			e.out, e.proven, e.since = false, false, now
			clear(e.witnesses)
		}
	}
	return back
}

// Progress is how far a flow through an exit in question is.
type Progress struct {
	AckedBytes uint64
	Heard      time.Time // when the last answer came
	RTT        time.Duration
}

// Inquiry finds out whether an exit is out as a whole: whether anything that is sent through it after a time still arrives. K tells flows apart.
type Inquiry[K comparable] struct {
	since time.Time
	until time.Time    // by then progress would have been seen
	acked map[K]uint64 // at the last look that tells nothing yet
}

// NewInquiry begins with the last witness.
func NewInquiry[K comparable](since time.Time) *Inquiry[K] { return &Inquiry[K]{since: since} }

// Look takes in all flows through the exit, and says whether the inquiry is over, and whether the exit is out. What is acknowledged a round trip after the time of the inquiry, and later, was sent after it. An answer alone
// proves nothing: clients send ACKs of their own accord, to keep connections alive.
func (i *Inquiry[K]) Look(flows iter.Seq2[K, Progress], now time.Time) (over, out bool) {
	first := i.acked == nil
	if first {
		i.until, i.acked = now.Add(confirmFor), map[K]uint64{}
	}
	for k, f := range flows {
		if patience := min(f.RTT+2*late, mostConfirmFor); first && now.Sub(f.Heard) < suspectFor && now.Add(patience).After(i.until) {
			i.until = now.Add(patience)
		}
		if first || !now.After(i.since.Add(f.RTT+late)) { // what is acknowledged until then may have been sent before
			i.acked[k] = f.AckedBytes
		} else if f.AckedBytes > i.acked[k] || f.AckedBytes > 0 && f.AckedBytes < i.acked[k] { // less: a flow that began since, from the same port
			return true, false
		}
	}
	out = !now.Before(i.until)
	return out, out
}
