package stripe

import (
	"context"
	"errors"
	"time"
)

const (
	// connectTime is the least time an attempt gets: less than TCP's first retransmission of a SYN (1 s, RFC 6298) would help nothing.
	connectTime = time.Second
	// connectTimeMax is what that grows to while a pair has never worked.
	connectTimeMax = 10 * time.Second
	// rivalEvery is how often an attempt is begun on a pair that has worked. What was sent before the link is back is lost, so while the session has no path
	// at all attempts overlap, rivalsMax at a time: with the round trips of the handshake, a quarter of a second is left of one after the link's return.
	rivalEvery = 300 * time.Millisecond
	rivalsMax  = 4
)

// connect makes a pair's n-th attempt.
func (d *dialer) connect(ctx context.Context, between pair, t *target, n int) (*path, error) {
	d.mu.Lock()
	to, old, timeout := t.attempt(n), t.path, min(connectTimeMax, 2*connectTime<<min(2*(t.failed/len(t.tries)), 10))
	d.mu.Unlock()
	if old != nil {
		return d.reconnect(ctx, between, t)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w, err := d.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return d.join(ctx, w, to, between, nil)
}

// reconnect makes a path in the place of one that does not work any more, unless that answers first.
func (d *dialer) reconnect(ctx context.Context, between pair, t *target) (*path, error) {
	won, err := d.race(ctx, between, t, t.path.rivalTime())
	if errors.Is(err, errAnswers) {
		return t.path, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, won.within)
	defer cancel()
	return d.join(ctx, won.wire, won.to, between, t.path)
}

// attempt is what the n-th attempt tries. It is called with the dialer locked.
func (t *target) attempt(n int) try {
	to := t.tries[n%len(t.tries)]
	to.from.small = t.small
	return to
}

// dial makes a wire.
func (d *dialer) dial(ctx context.Context, to try) (*opened, error) {
	w, err := carriers[d.cfg.Carrier].dial(ctx, to.from, to.to, d.tls)
	if err != nil {
		err = &attemptError{d.cfg.Carrier.explain(to.to, err), to.to}
	}
	return w, err
}

// errAnswers is how a race ends that the old path has won.
var errAnswers = errors.New("it answers again")

// answers reports whether a path works that was silent: the link was slower than ever, or back so soon that nobody noticed.
func (p *path) answers() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.err == nil && !p.flight.silent(time.Now())
}

// rivalTime is how long an attempt beside a path that has worked may take.
func (p *path) rivalTime() time.Duration {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return max(connectTime, 4*p.flight.srtt)
}

// rival is how one of several attempts ended.
type rival struct {
	wire   *opened
	to     try
	within time.Duration // the time it had
	err    error
}

// race makes a wire on a pair that has worked. It returns the first one that is there, and an error only when ctx ends, or the old path answers. As soon as an attempt has ended for want of time there is
// one of connectTimeMax beside the others: the link may be back with round trips that are longer than they were, or this host may be busy.
func (d *dialer) race(ctx context.Context, between pair, t *target, timeout time.Duration) (rival, error) {
	ctx, stop := context.WithCancel(ctx)
	open, patient, ended := 0, 0, make(chan rival)
	defer func() {
		stop()
		go func() {
			for range open + patient {
				if r := <-ended; r.err == nil {
					r.wire.Close()
				}
			}
		}()
	}()
	next := time.NewTicker(rivalEvery)
	defer next.Stop()
	slow := false
	for n := 0; ; {
		if open == 0 || open < rivalsMax && d.pathless() {
			go d.compete(ctx, t, n, timeout, ended)
			n, open = n+1, open+1
		}
		if slow && patient == 0 {
			go d.compete(ctx, t, n, connectTimeMax, ended)
			patient = 1
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return rival{}, ctx.Err()
			case <-next.C:
				if t.path.answers() {
					return rival{}, errAnswers
				}
				again = true
			case <-t.retry:
				again = true
			case r := <-ended:
				if r.within == timeout {
					open--
				} else {
					patient = 0
				}
				if r.err == nil {
					return r, nil
				}
				slow = timeout < connectTimeMax && (slow || late(r.err))
				d.note(between, t, nil, r.err)
			}
		}
	}
}

// compete makes the n-th attempt of several.
func (d *dialer) compete(ctx context.Context, t *target, n int, within time.Duration, ended chan<- rival) {
	d.mu.Lock()
	to := t.attempt(n)
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	w, err := d.dial(ctx, to)
	ended <- rival{w, to, within, err}
}

// pathless reports whether no pair has a path that works, and may carry anything.
func (d *dialer) pathless() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.targets {
		if t.works && !t.path.flight.spent() {
			return false
		}
	}
	return true
}
