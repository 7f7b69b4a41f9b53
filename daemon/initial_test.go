package daemon

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// asKernel compares what a connection does without plait and with it, by the same congestion control.
func (h *host) asKernel(client *host, check func(who string, c pair)) {
	h.Helper()
	for _, who := range []string{"the kernel's ", "plait's "} {
		c, err := h.connectTo("10.3.0.1", 0, client.ns, "")
		h.must(err)
		h.buffer(c.client, unix.SO_RCVBUFFORCE, 512<<10)
		h.must(transfer(c, 2<<20))
		check(who+systemDefault, c)
		h.must(errors.Join(c.server.SetLinger(0), c.client.SetLinger(0)))
		c.close()
		if who[0] == 't' {
			h.up(takeAll + "\n  policy: fixed:" + systemDefault)
		}
	}
}

// A peer that does not read for a while, and closes its window, leaves the window of the sender as it is, until it opens its own again: then that was an idle time.
func TestClosedWindow(t *testing.T) {
	h := newHost(t)
	h.asKernel(h.distant(nil), func(who string, c pair) {
		const initial, n = 10, 16 << 20
		before := h.window(c.server)
		go func() { _ = send(c.server, 0, n) }()
		closed := h.info(c.server)
		h.eventually(20*time.Second, "nothing is sent for 8 RTOs of 0.4 s", func() bool { closed = h.info(c.server); return closed.Last_data_sent > 3200 })
		go func() { _ = receive(c.client, 0, n) }()
		opened := closed
		h.eventually(10*time.Second, "something is on the way", func() bool { opened = h.info(c.server); return opened.Unacked > 0 })
		if closed.Unacked != 0 || closed.Snd_cwnd < before || opened.Snd_cwnd != initial {
			t.Errorf("%s: the window is %d segments, with %d on the way %d, then %d; want it kept, and then %d", who, before, closed.Unacked, closed.Snd_cwnd, opened.Snd_cwnd, initial)
		}
	})
}

// What is sent every now and then needs less than the window, and leaves it as it is: acknowledgements come all the time, of which the kernel takes each for a sign that
// it is in use.
func TestUnusedWindow(t *testing.T) {
	h := newHost(t)
	h.asKernel(h.distant(nil), func(who string, c pair) {
		before := h.window(c.server)
		go func() { _, _ = io.Copy(io.Discard, c.client) }()
		for range 30 { // in 7 RTOs of 0.4 s
			h.must(send(c.server, 0, 30<<10))
			time.Sleep(100 * time.Millisecond)
		}
		if after := h.window(c.server); after < before {
			t.Errorf("%s: of a window of %d segments %d are left", who, before, after)
		}
	})
}
