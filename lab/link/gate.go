package link

import "time"

// Gate lets packets through at once, or drops them all while it is closed: a failure without any signal.
type Gate struct {
	due
	closed bool
}

// SetClosed closes or opens the gate for packets that enter from now on.
func (g *Gate) SetClosed(closed bool) { g.closed = closed }

// Send implements Model.
func (g *Gate) Send(now time.Duration, p Packet) {
	if g.closed {
		g.dropped++
		return
	}
	g.add(now, p)
}
