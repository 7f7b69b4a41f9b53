package daemon

import (
	"os"
	"testing"

	"plait.dev/plait/bpf"
)

// Where the kernel has no memory for what plait keeps of a connection, its application's wish for plait leaves it with the system's default: without that the window never changes.
func TestNoMemoryForSocket(t *testing.T) {
	h := newHost(t)
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.up(takeAll)
	const limit = "/proc/sys/net/core/optmem_max"
	before, err := os.ReadFile(limit)
	h.must(err)
	h.in(func() error { return os.WriteFile(limit, []byte("64"), 0) })
	defer h.in(func() error { return os.WriteFile(limit, before, 0) }) // kernels before 6.8 have one for the machine
	c := h.connect(0, bpf.Name)
	h.must(transfer(c, 4<<20))
	if _, server := h.congestion(c); server != systemDefault || h.window(c.server) <= 10 {
		t.Errorf("the connection uses %s and has a window of %d segments, want %s and more than 10", server, h.window(c.server), systemDefault)
	}
}
