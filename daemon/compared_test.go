package daemon

import (
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
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
		h.acknowledged(c.server)
		h.must(c.server.Close())
		_, _ = c.client.Read(make([]byte, 1)) // until that has arrived
		h.must(c.client.Close())
	}
	time.Sleep(50 * time.Millisecond) // until the last one is acknowledged
	if got := h.bursts(p); got != n {
		t.Errorf("%d bursts are compared, want the %d that carried data", got, n)
	}
}

// A held-out connection that writes nothing begins no burst: the next one would have lasted since.
func TestNothingIsNoBurst(t *testing.T) {
	rung.Netns(t)
	mayTrace(t)
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	c := h.connect(0, "")
	for range 5 {
		_, err := c.server.Write(nil)
		h.must(err)
		time.Sleep(500 * time.Millisecond)
		h.must(transfer(c, 1000))
		h.acknowledged(c.server)
	}
	all := h.status(p).Prefixes
	if len(all) != 1 || all[0].Holdout.Bursts == 0 || all[0].Holdout.MeanMs > 250 {
		t.Errorf("%+v, want one prefix with bursts that are no half seconds", all)
	}
}

// What tells many connections from a few that have most of the bursts.
func TestSquaresOfBursts(t *testing.T) {
	h := newHost(t)
	h.up(takeAll)
	for n := range 4 {
		c := h.connect(0, "")
		for range n {
			h.must(transfer(c, 1000))
			h.acknowledged(c.server)
		}
	}
	var l bpf.Latency
	loopback := netip.MustParseAddr("127.0.0.0")
	h.must(h.mapOf("plait_latencies").Lookup(bpf.Prefix{Address: loopback.As16()}, &l))
	if m := l.Managed; m.Connections != 3 || m.Bursts != 1+2+3 || m.Squares != 1+4+9 || l.Holdout != (bpf.Group{}) {
		t.Errorf("%d connections, %d bursts, %d squares of their numbers, want 3, 6 and 14, and of the other group nothing: %+v", m.Connections, m.Bursts, m.Squares, l.Holdout)
	}
}

// Where there are more destinations than room one is forgotten, and comes back with the next burst: what is counted of its connections begins anew, too.
func TestForgottenDestination(t *testing.T) {
	h := newHost(t)
	h.up(takeAll)
	latencies := h.mapOf("plait_latencies")
	destination := netip.MustParseAddr("127.0.0.0")
	key := bpf.Prefix{Address: destination.As16()}
	c := h.connect(0, "")
	for _, n := range []uint64{7, 2} {
		for range n {
			h.must(transfer(c, 1000))
			h.acknowledged(c.server)
		}
		var l bpf.Latency
		h.must(latencies.Lookup(key, &l))
		if m := l.Managed; m.Connections != 1 || m.Bursts != n || m.Squares != n*n {
			t.Errorf("%d connections, %d bursts, %d squares of their numbers, want 1, %d and %d", m.Connections, m.Bursts, m.Squares, n, n*n)
		}
		var logs int64
		for i, k := range l.Managed.Buckets {
			logs += int64(k) * int64(bucketLog(i))
		}
		if m := l.Managed; m.LogsSquared != logs*logs || m.Products != int64(n)*logs {
			t.Errorf("logarithms squared %d, times bursts %d, want %d and %d", m.LogsSquared, m.Products, logs*logs, int64(n)*logs)
		}
		h.must(latencies.Delete(key)) // as the kernel does
	}
}

// A connection whose application has chosen plait is in no group: chance has not put it there.
func TestAskedIsNotCompared(t *testing.T) {
	h := newHost(t)
	p := h.up("  holdout_percent: 50")
	for range 5 {
		h.must(transfer(h.connect(0, bpf.Name), 1000))
	}
	later := h.connect(0, "")
	raw, err := later.server.SyscallConn()
	h.must(err)
	for _, now := h.congestion(later); now == bpf.Name; _, now = h.congestion(later) { // one that is held out
		later = h.connect(0, "")
		raw, err = later.server.SyscallConn()
		h.must(err)
	}
	h.must(chosen(bpf.Name)("", "", raw))
	h.must(transfer(later, 1000))
	time.Sleep(50 * time.Millisecond)
	if n := h.bursts(p); n != 0 {
		t.Errorf("%d bursts are compared, want none of connections that asked for plait", n)
	}
}

// One that asks for plait while it is only observed keeps it, as one that asks when it is made.
func TestAskedWhenObserved(t *testing.T) {
	h := newHost(t)
	p := h.up("  mode: observe")
	c := h.connect(0, "")
	raw, err := c.server.SyscallConn()
	h.must(err)
	h.must(chosen(bpf.Name)("", "", raw))
	h.uses("asked", c, systemDefault, bpf.Name)
	h.reload(p, "  mode: observe")
	h.sends(c, 1000)
	h.uses("after a reload", c, systemDefault, bpf.Name)
}

// A burst that its connection's end cuts off is counted.
func TestBurstUnmeasured(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	h.stalls(c, 4<<20)
	if n := h.status(p).Counters["bursts_unmeasured"]; n != 0 {
		t.Errorf("%d bursts are without an end, want none yet", n)
	}
	h.must(c.client.Close()) // with bytes that nobody has read: a reset
	h.must(c.server.Close())
	h.eventually(20*time.Second, "the burst is counted as one without an end", func() bool { return h.status(p).Counters["bursts_unmeasured"] == 1 })
}
