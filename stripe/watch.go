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
		now := time.Now()
		var dead []*path
		c.mu.Lock()
		patience := c.patience
		if c.deserted {
			patience = min(patience, desertedPatience)
		}
		hopeless := len(c.paths) == 0 && now.Sub(c.pathless) > patience
		bdp := 0.0
		for _, p := range c.paths {
			p.watch(now)
			bdp += p.in.bps * p.flight.srtt.Seconds()
			if c.peers != nil && p.flight.silent(now) && now.Sub(p.flight.silentSince()) > pathDead {
				dead = append(dead, p)
			}
		}
		c.window = min(maxWindow, startWindow+int(bdp/maxPayload))
		c.mu.Unlock()
		for _, p := range dead {
			p.end(fmt.Errorf("silent for %v", pathDead))
		}
		if hopeless {
			c.finish(fmt.Errorf("%w for %v", ErrNoPath, patience), "")
		}
	}
}

// watch averages a path's rates and asks for a sign of life when it is time.
func (p *path) watch(now time.Time) {
	p.in.tick(p.receivedBytes, tickEvery)
	p.out.tick(p.flight.sent, tickEvery)
	every := pingIdle
	if p.in.bps > 1000 || p.out.bps > 1000 {
		every = pingBusy
	}
	if p.flight.pingAt.IsZero() && now.Sub(p.pingedAt) >= every {
		p.pingedAt, p.flight.pingAt, p.pingDue = now, now, true
		p.wakeUp()
	}
}
