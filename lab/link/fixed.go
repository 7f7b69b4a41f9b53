package link

import "time"

// FixedConfig describes a Fixed link.
type FixedConfig struct {
	// RateBps is the capacity in bits per second; 0 is unlimited.
	RateBps int64
	// Queue is the limit of the drop-tail queue.
	Queue QueueLimit
}

// Fixed is a drop-tail queue in front of a link of fixed rate: a packet takes Packet.Bytes * 8 / rate, rounded up to the
// nanosecond. It has no propagation delay.
type Fixed struct {
	queue   queue
	out     due
	rateBps int64
	// work is what remained of the head at time since, in bits times 1e9: at rateBps, that much shrinks by rateBps
	// each nanosecond, so that changes of the rate lose nothing to rounding. It stays below 1e18.
	work  int64
	since time.Duration
}

// NewFixed returns an idle link.
func NewFixed(c FixedConfig) *Fixed {
	return &Fixed{queue: newQueue(c.Queue), rateBps: c.RateBps}
}

// finish is when the head will have been sent.
func (f *Fixed) finish() time.Duration {
	if f.rateBps == 0 {
		return f.since
	}
	return f.since + time.Duration((f.work+f.rateBps-1)/f.rateBps)
}

// begin starts the transmission of the head.
func (f *Fixed) begin(at time.Duration) {
	f.since, f.work = at, int64(f.queue.head().Bytes)*8*1e9
}

// advance lets out everything that has been sent by now.
func (f *Fixed) advance(now time.Duration) {
	for f.queue.len() > 0 && f.finish() <= now {
		at := f.finish()
		f.out.add(at, f.queue.pop())
		if f.queue.len() > 0 {
			f.begin(at)
		}
	}
}

// SetRate changes the rate at once: what remains of the packet in transmission and all queued ones go at the new rate.
func (f *Fixed) SetRate(now time.Duration, rateBps int64) {
	f.advance(now)
	if f.queue.len() > 0 {
		f.work -= int64(now-f.since) * f.rateBps
		f.since = now
	}
	f.rateBps = rateBps
}

// SetQueue replaces the limit of the queue. What is queued already stays, even beyond the new limit.
func (f *Fixed) SetQueue(limit QueueLimit) { f.queue.limit = limit }

// Send implements Model.
func (f *Fixed) Send(now time.Duration, p Packet) {
	f.advance(now)
	if f.queue.push(p) && f.queue.len() == 1 {
		f.begin(now)
		f.advance(now)
	}
}

// Next implements Model.
func (f *Fixed) Next() (time.Duration, bool) {
	if at, ok := f.out.Next(); ok {
		return at, true
	}
	if f.queue.len() == 0 {
		return 0, false
	}
	return f.finish(), true
}

// Receive implements Model.
func (f *Fixed) Receive(now time.Duration) (Packet, bool) {
	f.advance(now)
	return f.out.Receive(now)
}

// Queued implements Model.
func (f *Fixed) Queued() (packets, bytes int) { return f.queue.len(), f.queue.bytes }

// Dropped implements Model.
func (f *Fixed) Dropped() int64 { return f.queue.dropped }
