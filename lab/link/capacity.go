package link

import "time"

// headerBytes is the Ethernet header, which occupies fixed-rate links but not the opportunities of recorded and
// stochastic ones: their recordings count bytes of IP packets.
const headerBytes = 14

// opportunities is an endless process of instants at which a link can carry data.
type opportunities interface {
	// next is the following opportunity: its time, never before the previous one's, and how many bytes of IP packets
	// it carries, at least 1. Outages are gaps between the times.
	next() (at time.Duration, bytes int)
}

// slotted is a drop-tail queue in front of a link that carries data at opportunities only, as mahimahi's does: an
// opportunity carries whole packets and pieces as they fit, a packet comes out at the opportunity that carries its
// last byte, and what is left of an opportunity is lost when the queue is empty. An opportunity at the very time of
// an arrival is over when the packet arrives.
type slotted struct {
	queue queue
	out   due
	src   opportunities
	at    time.Duration // the opportunity in use: if the queue is not empty, the one that completes the head
	free  int           // what it can carry beyond the head
}

func newSlotted(src opportunities, limit QueueLimit) *slotted {
	return &slotted{queue: newQueue(limit), src: src, at: -1}
}

// serve books opportunities until the head is complete. That is safe to do ahead of time: nothing overtakes the head.
func (s *slotted) serve() {
	need := max(s.queue.head().Bytes-headerBytes, 0)
	for s.free < need {
		need -= s.free
		s.at, s.free = s.src.next()
	}
	s.free -= need
}

// advance lets out everything that is complete by now.
func (s *slotted) advance(now time.Duration) {
	for s.queue.len() > 0 && s.at <= now {
		s.out.add(s.at, s.queue.pop())
		if s.queue.len() > 0 {
			s.serve()
		}
	}
}

// Send implements Model.
func (s *slotted) Send(now time.Duration, p Packet) {
	s.advance(now)
	idle := s.queue.len() == 0
	if !s.queue.push(p) || !idle {
		return
	}
	for s.at <= now {
		s.at, s.free = s.src.next()
	}
	s.serve()
}

// Next implements Model.
func (s *slotted) Next() (time.Duration, bool) {
	if at, ok := s.out.Next(); ok {
		return at, true
	}
	return s.at, s.queue.len() > 0
}

// Receive implements Model.
func (s *slotted) Receive(now time.Duration) (Packet, bool) {
	s.advance(now)
	return s.out.Receive(now)
}

// SetQueue replaces the limit of the queue. What is queued already stays, even beyond the new limit.
func (s *slotted) SetQueue(limit QueueLimit) { s.queue.limit = limit }

// Queued implements Model.
func (s *slotted) Queued() (packets, bytes int) { return s.queue.len(), s.queue.bytes }

// Dropped implements Model.
func (s *slotted) Dropped() int64 { return s.queue.dropped }
