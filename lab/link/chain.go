package link

import "time"

// Chain nests models: what leaves one enters the next at that very time. There must be at least one.
//
// Until a packet has come through all models it is not known when, so Next may name a time at which something moves
// inside and nothing comes out.
func Chain(models ...Model) Model { return chain(models) }

type chain []Model

// step is the model from which a packet comes out next, the last one aside, and when.
func (c chain) step() (from int, at time.Duration, ok bool) {
	for i, m := range c[:len(c)-1] {
		// On a tie the packet further along moves first, so that it makes room for the one behind.
		if t, has := m.Next(); has && (!ok || t <= at) {
			from, at, ok = i, t, true
		}
	}
	return from, at, ok
}

// advance moves packets inside in the order of time, so that no model sees time go backwards.
func (c chain) advance(now time.Duration) {
	for {
		from, at, ok := c.step()
		if !ok || at > now {
			return
		}
		if p, ok := c[from].Receive(at); ok {
			c[from+1].Send(at, p)
		}
	}
}

// Send implements Model.
func (c chain) Send(now time.Duration, p Packet) {
	c.advance(now)
	c[0].Send(now, p)
}

// Next implements Model.
func (c chain) Next() (time.Duration, bool) {
	_, at, ok := c.step()
	if t, has := c[len(c)-1].Next(); has && (!ok || t < at) {
		at, ok = t, true
	}
	return at, ok
}

// Receive implements Model.
func (c chain) Receive(now time.Duration) (Packet, bool) {
	c.advance(now)
	return c[len(c)-1].Receive(now)
}

// Queued implements Model.
func (c chain) Queued() (packets, bytes int) {
	for _, m := range c {
		p, b := m.Queued()
		packets, bytes = packets+p, bytes+b
	}
	return packets, bytes
}

// Dropped implements Model.
func (c chain) Dropped() int64 {
	var n int64
	for _, m := range c {
		n += m.Dropped()
	}
	return n
}
