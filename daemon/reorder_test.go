package daemon

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overtaken has every other packet held back, so that those behind it overtake it.
func overtaken(to *os.File, by time.Duration) func([]byte) bool {
	n := 0
	return func(frame []byte) bool {
		n++
		if n%2 != 0 || len(frame) < 1000 {
			return false
		}
		held := bytes.Clone(frame)
		time.AfterFunc(by, func() { _, _ = to.Write(held) })
		return true
	}
}

// On a path that is known to reorder whatever arrives lets the window grow, in order or not, as in the kernel (tcp_may_raise_cwnd): else it would be the few packets that
// close a gap.
func TestGrowsThroughReordering(t *testing.T) {
	const oneWay, behind = 200 * time.Millisecond, 230 * time.Millisecond // by less than an eighth of the round trip, which RACK would take for a loss
	h := newHost(t)
	client := h.second("-client")
	near, far := h.device(client.ns, "wire", unix.IFF_TAP), h.device(h.ns, "wire", unix.IFF_TAP)
	go slowly(near, far, oneWay, nil)
	go slowly(far, near, oneWay, overtaken(near, behind))
	for ns, address := range map[string]string{h.ns: "10.3.0.1", client.ns: "10.3.0.2"} {
		h.ip("-n " + ns + " addr add " + address + "/24 dev wire")
		h.ip("-n " + ns + " link set wire up")
	}
	reordering := func(packets string) {
		h.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_reordering", []byte(packets), 0) })
	}
	once := func() (window uint32, lossless bool) {
		reordering("127")
		c, err := h.connectTo("10.3.0.1", 0, client.ns, "")
		h.must(err)
		for _, end := range []*net.TCPConn{c.server, c.client} {
			h.must(end.SetLinger(0)) // the wire may be gone before a FIN is acknowledged, and a socket that waits for that holds plait's programs
		}
		defer func() {
			c.close()
			time.Sleep(2 * behind) // until nothing is on the wire
		}()
		reordering("3") // of which the connection is known to exceed
		h.must(transfer(c, 400<<10))
		h.acknowledged(c.server) // or it is a matter of chance which ACKs count
		i := h.info(c.server)
		return i.Snd_cwnd, i.Total_retrans == 0
	}
	// A busy machine holds packets back for longer, which is a loss to either: that says something only where the window has grown all the same.
	window := func(enough uint32) (most uint32) {
		for range 20 {
			w, lossless := once()
			t.Logf("a window of %d segments, lossless: %v", w, lossless)
			most = max(most, w)
			if lossless || most >= enough {
				return most
			}
		}
		t.Fatalf("something is sent again by each of 20 connections, of which the largest window is %d segments; want %d, or one that loses nothing", most, enough)
		return 0
	}
	const segments = 400 << 10 / 1460 // at the least: in slow start the window grows by each
	kernel := window(segments)
	p := h.up(takeAll + "\n  policy: fixed:" + systemDefault)
	plait := window(kernel / 4 * 3)
	if plait < kernel/4*3 {
		t.Errorf("%s has grown its window to %d segments, the kernel's to %d", systemDefault, plait, kernel)
	}
	_, err := p.Stop(t.Context())
	h.must(err)
	h.clean("after down")
}
