package stripe

import (
	"math/bits"
	"slices"
	"time"
)

const (
	// maxWindow is how many chunks may be on their way or wait for order in a session: 64 MB of full ones.
	maxWindow = 4096
	// unsentTime is how long what is written may wait for a path before Write waits, within unsentLeast and unsentMost bytes.
	unsentTime  = 250 * time.Millisecond
	unsentLeast = 128 << 10
	unsentMost  = 2 << 20
	// lateMin is the least difference that counts: processes and timers are late by milliseconds.
	lateMin = 10 * time.Millisecond
	// priorityWait is what a chunk must have waited, for each step of priority.
	priorityWait = 50 * time.Millisecond
	// shareSlack lets a link with a share begin: its first chunks come before there is anything to have a share of.
	shareSlack = 4 * maxPayload
)

// chunk is a numbered piece of the stream, until it is acknowledged.
type chunk struct {
	number   uint64
	frame    []byte // as it is sent, its header in front of the data; nil when acknowledged
	size     int    // of the data when it was sent
	written  time.Time
	carriers [2]*flight
	copies   int // of carriers
	pins     int // writers that read frame now
	done     bool
}

// data is how many bytes it has so far.
func (c *chunk) data() int { return len(c.frame) - dataHeader }

// scheduler decides what each path sends. It is pulled: a path that has room takes the next chunk. It holds no clock, no
// lock and no socket; now is an argument of all that depends on time, and must not run backwards.
type scheduler struct {
	chunks  queue[*chunk] // of number base to the last written
	base    uint64        // oldest chunk without acknowledgement
	next    uint64        // first chunk no path has taken
	limit   uint64        // first chunk the peer has no room for
	unsent  int           // bytes from next on
	ended   bool          // the last chunk is the end of the stream
	orphans []*chunk      // taken by paths that are gone, by number
	flights []*flight
	crowds  map[*meter]*crowd // of paths that share a link
	sent    uint64            // bytes taken by all paths, for shares
	free    func([]byte)
}

// maxUnsent is how many bytes may wait for a path.
func (s *scheduler) maxUnsent() int {
	rate := 0.0
	for _, f := range s.flights {
		rate += f.rate
	}
	return min(unsentMost, max(unsentLeast, int(rate*unsentTime.Seconds())))
}

// room is how many bytes may be written now.
func (s *scheduler) room() int { return max(0, s.maxUnsent()-s.unsent) }

// write appends to the stream as much of p as there is room for.
func (s *scheduler) write(p []byte, now time.Time) int {
	p = p[:min(len(p), s.room())]
	for rest := p; len(rest) > 0; {
		c := s.last()
		if c == nil || c.data() == maxPayload {
			c = s.append(now, buffer(len(rest)))
		}
		n := min(len(rest), maxPayload-c.data())
		c.frame = append(c.frame, rest[:n]...)
		rest = rest[n:]
	}
	s.unsent += len(p)
	return len(p)
}

// adopt appends a full frame, which is the scheduler's from now on.
func (s *scheduler) adopt(frame []byte, now time.Time) {
	s.append(now, frame)
	s.unsent += maxPayload
}

// end ends the stream.
func (s *scheduler) end(now time.Time) {
	if !s.ended {
		s.append(now, make([]byte, dataHeader))
		s.ended = true
	}
}

func (s *scheduler) append(now time.Time, frame []byte) *chunk {
	c := &chunk{number: s.base + uint64(s.chunks.len()), frame: frame, written: now}
	s.chunks.push(c)
	return c
}

// last is the chunk that may still grow, if there is one.
func (s *scheduler) last() *chunk {
	if n := s.chunks.len(); s.base+uint64(n) > s.next {
		return *s.chunks.at(n - 1)
	}
	return nil
}

// idle reports whether everything written is acknowledged.
func (s *scheduler) idle() bool { return s.chunks.len() == 0 }

// delivered reports whether all bytes written are acknowledged; the end of the stream may not be.
func (s *scheduler) delivered() bool { return s.idle() || s.ended && s.chunks.len() == 1 }

// add lets another path take chunks.
func (s *scheduler) add(f *flight) { s.flights = append(s.flights, f) }

// remove takes a path out. What only it carried goes to the others before anything new.
func (s *scheduler) remove(f *flight) {
	s.flights = slices.DeleteFunc(s.flights, func(g *flight) bool { return g == f })
	for f.fifo.len() > 0 {
		c := f.fifo.pop().c
		if c.carriers[0] == f {
			c.carriers[0] = c.carriers[1]
		}
		c.copies--
		c.carriers[c.copies] = nil
		if !c.done && c.copies == 0 {
			s.orphans = append(s.orphans, c)
		}
	}
	f.bytes = 0
	slices.SortFunc(s.orphans, func(a, b *chunk) int { return int(a.number) - int(b.number) })
}

// ack takes what the peer says on a path: how many chunks came over it, which one is missing first, its limit, and as bits which of those
// after the missing one came, over any path. So what a path has brought whose acknowledgements are lost is not sent again.
func (s *scheduler) ack(f *flight, received, next, limit, beyond uint64, now time.Time) error {
	if next > s.next || beyond != 0 && next+uint64(bits.Len64(beyond)) >= s.next {
		return errAckUnsent
	}
	if err := f.acked(received, now, s.finish); err != nil {
		return err
	}
	for s.base < next {
		s.finish(*s.chunks.at(0))
		s.chunks.pop()
		s.base++
	}
	for ; beyond != 0; beyond &= beyond - 1 {
		if n := next + 1 + uint64(bits.TrailingZeros64(beyond)); n >= s.base { // paths overtake each other
			s.finish(*s.chunks.at(int(n - s.base)))
		}
	}
	for s.chunks.len() > 0 && (*s.chunks.at(0)).done {
		s.chunks.pop()
		s.base++
	}
	s.limit = max(s.limit, limit) // paths overtake each other: a lower one is an old one
	return nil
}

// finish notes that the peer has the chunk.
func (s *scheduler) finish(c *chunk) {
	if !c.done {
		c.done = true
		s.drop(c)
	}
}

// unpin notes that a writer has read the chunk's frame.
func (s *scheduler) unpin(c *chunk) {
	c.pins--
	if c.done {
		s.drop(c)
	}
}

// drop gives the memory back, unless a writer reads it still.
func (s *scheduler) drop(c *chunk) {
	if c.pins == 0 {
		s.free(c.frame)
		c.frame = nil
	}
}

// mayUse reports whether policy lets the path carry anything now. A peer may say that it has chunks, and nothing of the path they came over: what is kept of them is
// bounded, too. What only waits for the path's own acknowledgements, which another's have overtaken, is less than another window.
func (s *scheduler) mayUse(f *flight, now time.Time) bool {
	switch {
	case f.spent() || s.rests(f, now) || f.fifo.len() >= 2*maxWindow:
		return false
	case f.backup() && s.any(f, now, func(g *flight) bool { return !g.backup() }):
		return false
	case f.sated(s.sent) && s.any(f, now, func(g *flight) bool { return !g.shared() && (!g.backup() || f.backup()) }):
		return false
	}
	return true
}

// any reports whether another path, one that answers and has not reached its cap, has the property.
func (s *scheduler) any(f *flight, now time.Time, property func(*flight) bool) bool {
	return slices.ContainsFunc(s.flights, func(g *flight) bool { return g != f && !g.silent(now) && !g.spent() && property(g) })
}

// orphan is the first chunk no path carries any more.
func (s *scheduler) orphan() *chunk {
	for len(s.orphans) > 0 {
		c := s.orphans[0]
		if !c.done {
			return c
		}
		s.orphans = s.orphans[1:]
	}
	return nil
}

// overdue is the oldest chunk that only a silent path carries.
func (s *scheduler) overdue(f *flight, now time.Time) *chunk {
	var oldest *chunk
	for _, g := range s.flights {
		if g == f || !g.silent(now) {
			continue
		}
		for i := range g.fifo.len() {
			if c := g.fifo.at(i).c; !c.done && c.copies == 1 {
				if oldest == nil || c.number < oldest.number {
					oldest = c
				}
				break
			}
		}
	}
	return oldest
}

// late is the first chunk that this path, sending it once more now, would deliver before the path that carries it; by more than it takes this
// path to send it, for so long what comes next would wait, unless nothing can come.
func (s *scheduler) late(f *flight, now time.Time) *chunk {
	for _, g := range s.flights {
		if g == f {
			continue
		}
		for i := range g.fifo.len() {
			e := g.fifo.at(i)
			if e.c.done || e.c.copies > 1 {
				continue
			}
			mine := now.Add(f.arrival(e.c.size))
			if !s.ended && !s.blocked() {
				mine = mine.Add(max(f.through(e.c.size), lateMin))
			}
			if mine.Before(g.expected(e.at, now)) || now.After(e.at.Add(g.srtt+max(2*g.rttvar, lateMin))) {
				return e.c
			}
		}
	}
	return nil
}

// fresh is the next chunk nobody carries, unless the stream is better served without this path:
// while the writer is ahead (bulk), because its chunk would hold back others beyond the peer's window;
// when the writer is not, because other paths would deliver all there is before this one a single chunk;
// or because links of a lower number of priority may still take it.
func (s *scheduler) fresh(f *flight, now time.Time) *chunk {
	if s.next >= s.base+uint64(s.chunks.len()) || s.next >= s.limit || s.next-s.base >= maxWindow {
		return nil
	}
	c := *s.chunks.at(int(s.next - s.base))
	mine, bulk, others := f.arrival(c.data()), s.unsent > s.maxUnsent()/2, 0.0
	for _, g := range s.flights {
		if g == f || g.silent(now) || !s.mayUse(g, now) {
			continue
		}
		steps := f.priority() - g.priority()
		if steps > 0 && now.Sub(c.written) < time.Duration(steps)*priorityWait {
			return nil
		}
		if g.rate == 0 {
			continue
		}
		if g.arrival(c.data()) < mine { // or each of two would wait for the other
			others += g.rate
		}
		if !bulk && steps >= 0 && g.arrival(s.unsent) < mine {
			return nil
		}
	}
	if free := min(s.limit, s.base+maxWindow) - s.next; others*mine.Seconds() > float64(free)*maxPayload {
		return nil
	}
	return c
}

// blocked reports whether three quarters of the peer's window wait for its oldest chunk.
func (s *scheduler) blocked() bool {
	return s.next > s.base && (s.limit-s.next)*4 < s.limit-s.base
}

// take gives the path the chunk to send now, or nil: then it asks again after anything changed, or some milliseconds.
func (s *scheduler) take(f *flight, now time.Time) *chunk {
	var c *chunk
	if s.mayUse(f, now) {
		c = s.pick(f, now)
	}
	if c == nil {
		f.pass()
		return nil
	}
	if c.copies == 0 && c.number == s.next {
		s.next++
		c.size = c.data()
		s.unsent -= c.size
		putDataHeader(c.frame, c.number)
	} else if c.copies == 0 {
		s.orphans = s.orphans[1:]
	}
	s.sent += uint64(c.size)
	f.put(c, now)
	return c
}

// pick is the order of what is urgent.
func (s *scheduler) pick(f *flight, now time.Time) *chunk {
	if f.silent(now) {
		return nil
	}
	if c := s.orphan(); c != nil {
		return c
	}
	if c := s.overdue(f, now); c != nil {
		return c
	}
	if s.blocked() {
		if c := s.late(f, now); c != nil {
			return c
		}
	}
	if c := s.fresh(f, now); c != nil {
		return c
	}
	return s.late(f, now)
}
