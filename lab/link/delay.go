package link

import "time"

// Delay is propagation delay. A packet takes the delay that holds when it enters, so after a reduction later packets
// overtake those already under way, as on a path that became shorter and as in netem.
type Delay struct {
	due
	delay time.Duration
}

// NewDelay returns a link that delays each packet by d >= 0.
func NewDelay(d time.Duration) *Delay { return &Delay{delay: d} }

// SetDelay changes the delay of packets that enter from now on.
func (d *Delay) SetDelay(delay time.Duration) { d.delay = delay }

// Send implements Model.
func (d *Delay) Send(now time.Duration, p Packet) { d.add(now+d.delay, p) }
