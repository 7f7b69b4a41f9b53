package link

// QueueLimit is the limit of a drop-tail queue; 0 leaves a kind unlimited. A packet that would exceed either is dropped.
type QueueLimit struct {
	// Packets in the queue, the one in transmission included.
	Packets int
	// Bytes in the queue (Packet.Bytes), those of the packet in transmission included in full.
	Bytes int
}

// queue is a drop-tail queue. Its head is the packet in transmission.
type queue struct {
	limit   QueueLimit
	packets fifo[Packet]
	bytes   int
	dropped int64
}

func newQueue(limit QueueLimit) queue { return queue{limit: limit} }

// push appends p, or drops it and says false.
func (q *queue) push(p Packet) bool {
	if q.limit.Packets > 0 && q.len() >= q.limit.Packets || q.limit.Bytes > 0 && q.bytes+p.Bytes > q.limit.Bytes {
		q.dropped++
		return false
	}
	q.packets.push(p)
	q.bytes += p.Bytes
	return true
}

// pop takes out the head; the queue must not be empty.
func (q *queue) pop() Packet {
	p := q.packets.pop()
	q.bytes -= p.Bytes
	return p
}

// head is the first packet, or nil if there is none. It is valid until the next push or pop.
func (q *queue) head() *Packet { return q.packets.head() }

func (q *queue) len() int { return q.packets.n }

// fifo is a ring buffer that grows and never shrinks, so that a model in its steady state allocates nothing.
type fifo[T any] struct {
	ring  []T // length zero or a power of two
	first int
	n     int
}

func (f *fifo[T]) push(v T) {
	if f.n == len(f.ring) {
		ring := make([]T, max(16, 2*f.n))
		copied := copy(ring, f.ring[f.first:])
		copy(ring[copied:], f.ring[:f.first])
		f.ring, f.first = ring, 0
	}
	f.n++
	*f.at(f.n - 1) = v
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.ring[f.first]
	f.ring[f.first] = zero
	f.first = (f.first + 1) & (len(f.ring) - 1)
	f.n--
	return v
}

func (f *fifo[T]) head() *T {
	if f.n == 0 {
		return nil
	}
	return f.at(0)
}

// at is the element i places behind the head.
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.first+i)&(len(f.ring)-1)] }
