package stripe

import (
	"fmt"
	"time"
)

// runWatch looks after the session until it ends: patience, signs of life, rates, the window.
func (c *Conn) runWatch() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		refused := c.refused()
		now := time.Now()
		var dead []*path
		c.mu.Lock()
		bdp := 0.0
		for _, p := range c.paths {
			p.watch(now)
			p.flight.packetRTT = p.wire.packetRTT()
			bdp += p.in.bps * p.flight.srtt.Seconds()
			if c.peers != nil && p.dead(now) {
				dead = append(dead, p)
			}
		}
		c.out.weigh(now)
		c.window = min(maxWindow, startWindow+int(bdp/maxPayload))
		hopeless := c.hopeless(now, refused)
		c.mu.Unlock()
		for _, p := range dead {
			p.end(fmt.Errorf("silent for %v", pathDead))
		}
		if hopeless != nil {
			c.finish(hopeless, hopeless.Error())
		}
	}
}

// hopeless is why the session is to end, if it is: for too long, no path may carry anything. For how long the peer's host
// has refused new ones is known before the session is locked.
func (c *Conn) hopeless(now time.Time, refused time.Duration) error {
	if c.remote == nil && c.peers == nil { // Dial waits for the first path, for as long as it is to
		c.pathless = now
		return nil
	}
	spent := false
	for _, p := range c.paths {
		if p.carries(now) {
			c.pathless = time.Time{}
			return nil
		}
		spent = spent || p.flight.spent()
	}
	if c.pathless.IsZero() {
		c.pathless = now
	}
	patience, exhausted := c.patience, c.exhausted()
	if exhausted {
		patience = min(patience, spentPatience)
	} else if c.deserted > 0 && refused > c.deserted {
		patience = min(patience, c.deserted)
	}
	switch {
	case now.Sub(c.pathless) <= patience:
		return nil
	case exhausted:
		return ErrSpent
	case spent: // a link without a cap has not come
		return fmt.Errorf("%w for %v; links that have one have reached their caps, which are for one run: raise the caps, or see to the other links", ErrNoPath, patience)
	}
	return fmt.Errorf("%w for %v", ErrNoPath, patience)
}

// carries reports whether anything may still come over the path: it is not silent as it is when the listener has closed it, and has not reached a cap, or
// what was sent before is on its way.
func (p *path) carries(now time.Time) bool {
	if p.dead(now) {
		return false
	}
	return !p.flight.spent() || p.flight.fifo.len() > 0 || p.in.bps > 1000
}

// dead reports whether the path has been silent for too long.
func (p *path) dead(now time.Time) bool {
	since := p.flight.silentSince()
	return !since.IsZero() && now.Sub(since) > pathDead
}

// exhausted reports whether all links of this host that are to be used have reached their caps.
func (c *Conn) exhausted() bool {
	for name := range c.cfg.Links {
		if !c.cfg.spent(name) {
			return false
		}
	}
	return len(c.cfg.Links) > 0
}

// watch averages a path's rates and asks for a sign of life when it is time.
func (p *path) watch(now time.Time) {
	p.in.tick(p.receivedBytes, now)
	p.out.tick(p.flight.sent, now)
	every := pingIdle
	if p.in.bps > 1000 || p.out.bps > 1000 {
		every = pingBusy
	}
	if p.flight.pingAt.IsZero() && now.Sub(p.pingedAt) >= every {
		p.pingedAt, p.flight.pingAt, p.pingDue = now, now, true
		p.wakeUp()
	}
}
