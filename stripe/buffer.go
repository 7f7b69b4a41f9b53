package stripe

import "sync"

// Buffers of full frames are used again: at 5 Gbit/s there are 40000 a second.
var buffers = sync.Pool{New: func() any { return new([maxFrame]byte) }}

// buffer returns one for the rest of a write, with room for a header. Small writes get a small one, which grows when more follows.
func buffer(rest int) []byte {
	if rest < maxPayload/4 {
		return make([]byte, dataHeader, dataHeader+rest)
	}
	return buffers.Get().(*[maxFrame]byte)[:dataHeader]
}

// release gives a buffer back that nobody else holds.
func release(b []byte) {
	if cap(b) == maxFrame {
		buffers.Put((*[maxFrame]byte)(b[:maxFrame]))
	}
}
