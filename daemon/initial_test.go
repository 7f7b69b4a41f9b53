package daemon

import (
	"testing"
	"time"
)

// After an idle time the window is that of the route (initcwnd), as in the kernel, where the administrator has set one.
func TestIdleKeepsInitialWindow(t *testing.T) {
	const initial = 40
	h := newHost(t)
	peer := h.joined()
	h.ip("-n " + h.ns + " route replace 192.0.2.0/24 dev out initcwnd 40")
	window := func() uint32 {
		c, err := h.connectTo("192.0.2.1", 0, peer.ns, "")
		h.must(err)
		defer c.close()
		h.must(transfer(c, 4<<20))
		time.Sleep(3 * time.Second) // an RTO is 0.2 s
		h.must(transfer(c, 1000))
		return h.window(c.server)
	}
	if n := window(); n != initial {
		t.Fatalf("the kernel's %s has a window of %d segments after an idle time, want %d", systemDefault, n, initial)
	}
	h.up(takeAll + "\n  policy: fixed:" + systemDefault)
	if n := window(); n != initial {
		t.Errorf("%s has a window of %d segments after an idle time, the kernel's %d", systemDefault, n, initial)
	}
}
