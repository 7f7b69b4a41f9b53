package stripe

import (
	"errors"
	"io"
)

// startWindow is how many chunks a reader gives credit for at first: 8 MB of full ones. It becomes the sum of the paths'
// bandwidth-delay products more than that, up to maxWindow.
const startWindow = 512

var (
	errBeyondLimit = errors.New("peer sends beyond the limit it was given")
	errAfterEnd    = errors.New("peer sends after the end of its stream")
)

// reorder puts chunks in order. Chunks have numbers and not offsets: two cannot overlap, and there are never more than
// the limit allows, whatever the peer sends.
type reorder struct {
	ring   [][]byte // of chunk n at n modulo the length, a power of two; nil: not there, or read
	next   uint64   // first missing chunk
	read   uint64   // first chunk not wholly read
	offset int      // of it, bytes read
	limit  uint64   // first chunk the peer may not send
	ended  bool     // the number of the end is known
	end    uint64
	held   int // bytes in ring
}

// grow raises the limit to window chunks after what is read.
func (r *reorder) grow(window int) {
	r.limit = max(r.limit, r.read+uint64(min(window, maxWindow)))
	if need := int(r.limit - r.read); need > len(r.ring) {
		size := max(64, len(r.ring))
		for size < need {
			size *= 2
		}
		ring := make([][]byte, size)
		for n := r.read; n < r.read+uint64(len(r.ring)); n++ {
			ring[n&uint64(size-1)] = r.ring[n&uint64(len(r.ring)-1)]
		}
		r.ring = ring
	}
}

// insert takes a chunk; fresh is false if it came before. An empty one is the end of the stream.
func (r *reorder) insert(number uint64, data []byte) (fresh bool, err error) {
	switch {
	case number >= r.limit:
		return false, errBeyondLimit
	case r.ended && (number > r.end || (len(data) == 0) != (number == r.end)):
		return false, errAfterEnd
	case number < r.next:
		return false, nil
	}
	if len(data) == 0 {
		if r.ended {
			return false, nil
		}
		for n := number; n < r.limit; n++ {
			if *r.slot(n) != nil {
				return false, errAfterEnd
			}
		}
		r.ended, r.end = true, number
	} else {
		if *r.slot(number) != nil {
			return false, nil
		}
		*r.slot(number) = data
		r.held += len(data)
	}
	for r.next < r.limit && *r.slot(r.next) != nil {
		r.next++
	}
	if r.ended && r.next == r.end {
		r.next++
	}
	return true, nil
}

func (r *reorder) slot(number uint64) *[]byte { return &r.ring[number&uint64(len(r.ring)-1)] }

// beyond tells which of the 63 chunks after the missing one are there: bit 0 is that of the next one.
func (r *reorder) beyond() (bits uint64) {
	if r.held == 0 {
		return 0
	}
	for i := range min(63, r.limit-min(r.limit, r.next+1)) {
		if *r.slot(r.next + 1 + i) != nil {
			bits |= 1 << i
		}
	}
	return bits
}

// over reports whether the whole stream is there.
func (r *reorder) over() bool { return r.ended && r.next > r.end }

// ready reports whether take would return anything but nothing.
func (r *reorder) ready() bool { return r.read < r.next }

// take copies what is in order to p, and returns io.EOF at the end.
func (r *reorder) take(p []byte) (n int, err error) {
	for n < len(p) && r.read < r.next {
		if r.ended && r.read == r.end {
			if n == 0 {
				err = io.EOF
			}
			return n, err
		}
		slot := r.slot(r.read)
		k := copy(p[n:], (*slot)[r.offset:])
		n += k
		r.held -= k
		if r.offset += k; r.offset == len(*slot) {
			release(*slot)
			*slot, r.offset = nil, 0
			r.read++
		}
	}
	return n, nil
}
