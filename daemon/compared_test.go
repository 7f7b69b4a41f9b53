package daemon

import (
	"testing"
	"time"
)

// bursts is how many of managed connections are in the comparison.
func (h *host) bursts(p *process) (n uint64) {
	h.Helper()
	for _, d := range h.status(p).Prefixes {
		n += d.Managed.Bursts
	}
	return n
}

// The end of a connection is no burst. That of a held-out one is not timed either, so short connections would look faster than they are.
func TestEndIsNoBurst(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	const n = 10
	for range n {
		c := h.connect(0, "")
		h.must(transfer(c, 1000))
		time.Sleep(10 * time.Millisecond) // until it is acknowledged
		h.must(c.server.Close())
		_, _ = c.client.Read(make([]byte, 1)) // until that has arrived
		h.must(c.client.Close())
	}
	time.Sleep(50 * time.Millisecond) // until the last one is acknowledged
	if got := h.bursts(p); got != n {
		t.Errorf("%d bursts are compared, want the %d that carried data", got, n)
	}
}
