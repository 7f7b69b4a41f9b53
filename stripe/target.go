package stripe

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"
)

const (
	// rivalAfter is how long a path may be silent before a new connection is tried beside it. TCP alone would try again later and
	// later: after a minute of silence it takes up to a minute to notice that the link is back.
	rivalAfter = 500 * time.Millisecond
	// pauseMax is what the pauses between attempts grow to while a pair has never worked.
	pauseMax = 30 * time.Second
	// pauseKnown is the same if both links have had paths, if not with each other: one of them may be back.
	pauseKnown = 2 * time.Second
	// pauseAgain is the pause after a failure on a pair that has worked.
	pauseAgain = 200 * time.Millisecond
)

// target is a pair that is to have a path.
type target struct {
	cancel context.CancelFunc
	tries  []try
	since  time.Time // when it was begun, or failed after having worked
	path   *path     // the last one
	works  bool
	failed int  // attempts, since it worked
	small  bool // larger packets may be lost
	err    error
	// refused is when the peer's host said that nobody is at the address the path led to, or that of another over the same link, since that worked.
	refused refusal
	retry   signal
}

// late says whether an attempt ended because no answer came in its time.
func late(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// runPair keeps a path between a pair until ctx ends.
func (d *dialer) runPair(ctx context.Context, between pair, t *target) {
	for n := 0; ctx.Err() == nil; n++ {
		p, err := d.connect(ctx, between, t, n)
		if err != nil && ctx.Err() != nil {
			break
		}
		pause := d.note(between, t, p, err)
		if err == nil {
			p.untilSilent(ctx)
			d.lose(t)
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.retry:
		case <-time.After(pause):
		}
	}
	select {
	case <-d.c.done: // the session closes its paths itself
	default:
		if t.path != nil {
			t.path.end(errLinkGone)
		}
	}
}

// note keeps how an attempt ended, and says how long to pause after it. Once the session has ended, a failure says nothing of the link: the peer is no more.
func (d *dialer) note(between pair, t *target, p *path, err error) (pause time.Duration) {
	if err != nil && d.over() {
		return pauseAgain
	}
	defer d.changed.signal()
	d.mu.Lock()
	defer d.mu.Unlock()
	t.err, t.works, t.small = t.blame(err), err == nil, t.small || errors.Is(err, errUnanswered)
	if err == nil {
		t.path, t.failed, t.refused, d.wanted[p.link], d.had[between] = p, 0, refusal{}, true, p
		if len(d.had) > maxPaths { // a listener may give its links one name after the other
			maps.DeleteFunc(d.had, func(of pair, _ *path) bool { return d.targets[of] == nil })
		}
		return 0
	}
	t.failed++
	if t.refuses(err) {
		for of, o := range d.targets { // those over one link are refused in turn: Linux sends an address an ICMP message a second
			if of.link == between.link {
				o.refused.note(desertedPatience)
			}
		}
	}
	switch {
	case t.path != nil:
		return pauseAgain
	case t.failed%len(t.tries) != 0:
		return 0 // another address may do
	}
	longest := pauseMax
	if d.known(between) {
		longest = pauseKnown
	}
	return min(longest, connectTime/2<<min(t.failed/len(t.tries), 10))
}

// refuses reports whether an attempt has ended because nobody is at the address that the pair's path led to. Its other addresses may be another host's, or a firewall's.
func (t *target) refuses(err error) bool {
	var at *attemptError
	return t.path != nil && errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &at) && at.to == addrPort(t.path.wire.RemoteAddr())
}

// refused is for how long the peer's host has refused, by now, every pair that has worked: its process has died. An attempt without an answer says nothing; with QUIC
// many have none.
func (d *dialer) refused() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var each []time.Duration
	for _, t := range d.targets {
		switch {
		case t.path == nil: // it may be none that can work
		case t.works || time.Since(t.refused.last) > desertedPatience:
			return 0
		default:
			each = append(each, t.refused.last.Sub(t.refused.first))
		}
	}
	if len(each) == 0 { // the links are gone
		return 0
	}
	return slices.Min(each)
}

// known reports whether both links of a pair have had paths.
func (d *dialer) known(between pair) bool {
	link, to := false, false
	for p := range d.had {
		link, to = link || p.link == between.link, to || p.to == between.to
	}
	return link && to
}

// lose notes that a target's path does not work any more. The session's own end is no loss: what worked until then did.
func (d *dialer) lose(t *target) {
	if d.over() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.works, t.since = false, time.Now()
	select {
	case <-t.path.done:
		t.err = errPathLost
	default: // it is silent
	}
}

// over reports whether the session has ended, at either end.
func (d *dialer) over() bool {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return d.c.err != nil || d.c.ending
}

// untilSilent returns when the path has ended, or owes an answer for too long, or ctx ends.
func (p *path) untilSilent(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.done:
			return
		case now := <-tick.C:
			p.c.mu.Lock()
			since := p.flight.silentSince()
			p.c.mu.Unlock()
			if !since.IsZero() && now.Sub(since) > rivalAfter {
				return
			}
		}
	}
}
