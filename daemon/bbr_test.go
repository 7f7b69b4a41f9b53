package daemon

import (
	"net"
	"testing"
)

// pacing is the rate in bytes per second at which a socket is paced.
func (h *host) pacing(c *net.TCPConn) uint64 { return h.info(c).Pacing_rate }

// BBR keeps the rate it knows while the application sends too little to show one, as the kernel's does: what comes then would else leave at the pace of what
// came before.
func TestBBRKeepsRate(t *testing.T) {
	h := newHost(t)
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.up(takeAll + "\n  policy: fixed:bbr")
	c := h.connect(0, "")
	h.must(transfer(c, 64<<20))
	before := h.pacing(c.server)
	for range 40 { // round trips, of which the last 10 count
		h.must(transfer(c, 1000))
		h.acknowledged(c.server)
	}
	if after := h.pacing(c.server); after < before/2 {
		t.Errorf("after 40 small bursts it paces at %d kB/s, after the transfer it did at %d", after/1000, before/1000)
	}
}
