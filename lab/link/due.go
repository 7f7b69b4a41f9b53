package link

import "time"

// due holds packets until the time at which each comes out. Models that only delay or drop embed it: it is all of Model
// but Send.
type due struct {
	packets fifo[timed]
	dropped int64
}

type timed struct {
	at     time.Duration
	packet Packet
}

// add lets p out at the given time, after those already due at that time. The cost is the number of packets overtaken.
func (d *due) add(at time.Duration, p Packet) {
	d.packets.push(timed{at, p})
	for i := d.packets.n - 1; i > 0 && d.packets.at(i-1).at > at; i-- {
		a, b := d.packets.at(i-1), d.packets.at(i)
		*a, *b = *b, *a
	}
}

// Next implements Model.
func (d *due) Next() (time.Duration, bool) {
	if h := d.packets.head(); h != nil {
		return h.at, true
	}
	return 0, false
}

// Receive implements Model.
func (d *due) Receive(now time.Duration) (Packet, bool) {
	if h := d.packets.head(); h == nil || h.at > now {
		return Packet{}, false
	}
	return d.packets.pop().packet, true
}

// Queued implements Model: nothing waits for capacity here.
func (d *due) Queued() (packets, bytes int) { return 0, 0 }

// Dropped implements Model.
func (d *due) Dropped() int64 { return d.dropped }
