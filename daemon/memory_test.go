package daemon

import (
	"os"
	"testing"

	"plait.dev/plait/bpf"
	"plait.dev/plait/lab/netns"
)

// Where the kernel has no memory for what plait keeps of a connection, its application's wish for plait leaves it with the system's default: without that the window never changes.
func TestNoMemoryForSocket(t *testing.T) {
	h := newHost(t)
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.up(takeAll)
	const limit = "/proc/sys/net/core/optmem_max"
	inside := func(f func() error) error { return netns.Do(h.ns, f) }
	if inside(func() error { _, err := os.Stat(limit); return err }) != nil { // kernels before 6.8 have one for the whole machine
		inside = func(f func() error) error { return f() }
	}
	var before []byte
	h.must(inside(func() (err error) { before, err = os.ReadFile(limit); return err }))
	limits := func(to []byte) { h.must(inside(func() error { return os.WriteFile(limit, to, 0) })) }
	limits([]byte("64"))
	defer limits(before)
	c := h.connect(0, bpf.Name)
	h.must(transfer(c, 4<<20))
	if _, server := h.congestion(c); server != systemDefault || h.window(c.server) <= 10 {
		t.Errorf("the connection uses %s and has a window of %d segments, want %s and more than 10", server, h.window(c.server), systemDefault)
	}
}
