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

// asKernel compares what a connection does without plait and with it, by the same congestion control. check is false where this host has stood still and made it another case: then
// it is made for another connection.
func (h *host) asKernel(client *host, check func(who string, c pair) (said bool)) {
	h.Helper()
	once := func(who string) bool {
		c, err := h.connectTo("10.3.0.1", 0, client.ns, "")
		h.must(err)
		defer c.close()
		h.must(errors.Join(c.server.SetLinger(0), c.client.SetLinger(0)))
		h.buffer(c.client, unix.SO_RCVBUFFORCE, 512<<10)
		h.must(transfer(c, 2<<20))
		return check(who, c)
	}
	for _, who := range []string{"the kernel's ", "plait's "} {
		for tries := 1; !once(who + systemDefault); tries++ {
			if tries == 10 {
				h.Fatalf("%s: each of %d tries was interrupted", who+systemDefault, tries)
			}
		}
		if who[0] == 't' {
			h.up(takeAll + "\n  policy: fixed:" + systemDefault)
		}
	}
}

// timeout is the RTO of a socket.
func timeout(i *unix.TCPInfo) time.Duration { return time.Duration(i.Rto) * time.Microsecond }

// A peer that does not read for a while, and closes its window, leaves the window of the sender as it is, until it opens its own again: then that was an idle time.
func TestClosedWindow(t *testing.T) {
	h := newHost(t)
	h.asKernel(h.distant(nil), func(who string, c pair) bool {
		const initial, n = 10, 16 << 20
		before := h.info(c.server)
		go func() { _ = send(c.server, 0, n) }()
		closed := before
		h.eventually(time.Minute, "nothing is sent for 8 RTOs, which are of 0.4 s where packets wait for none but the wire", func() bool {
			closed = h.info(c.server)
			return time.Duration(closed.Last_data_sent)*time.Millisecond > 8*timeout(closed)
		})
		go func() { _ = receive(c.client, 0, n) }()
		opened := closed
		h.eventually(10*time.Second, "something is on the way", func() bool { opened = h.info(c.server); return opened.Unacked > 0 })
		if opened.Total_retrans != before.Total_retrans || opened.Bytes_acked != closed.Bytes_acked {
			return false // the window is one after a loss, or has grown again
		}
		if closed.Unacked != 0 || closed.Snd_cwnd < before.Snd_cwnd || opened.Snd_cwnd != initial {
			t.Errorf("%s: the window is %d segments, with %d on the way %d, then %d; want it kept, and then %d", who, before.Snd_cwnd, closed.Unacked, closed.Snd_cwnd, opened.Snd_cwnd, initial)
		}
		return true
	})
}

// What is sent every now and then needs less than the window, and leaves it as it is: acknowledgements come all the time, of which the kernel takes each for a sign that
// it is in use.
func TestUnusedWindow(t *testing.T) {
	h := newHost(t)
	h.asKernel(h.distant(nil), func(who string, c pair) bool {
		before := h.info(c.server)
		go func() { _, _ = io.Copy(io.Discard, c.client) }()
		idle := false
		begin := time.Now()
		for last, now := begin, before; time.Since(begin) < 7*timeout(now); now = h.info(c.server) { // each 0.4 s
			sends := time.Now()
			h.must(send(c.server, 0, 30<<10))
			idle = idle || time.Since(last) > timeout(now)
			last = sends
			time.Sleep(100 * time.Millisecond)
		}
		after := h.info(c.server)
		if idle || after.Total_retrans != before.Total_retrans {
			return false // that leaves no window as it is
		}
		if after.Snd_cwnd < before.Snd_cwnd {
			t.Errorf("%s: of a window of %d segments %d are left", who, before.Snd_cwnd, after.Snd_cwnd)
		}
		return true
	})
}
