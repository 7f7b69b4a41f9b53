package daemon

import (
	"io"
	"slices"
	"testing"
	"time"
)

// In mode observe connections stay as they are and are reported.
func TestObserve(t *testing.T) {
	h := newHost(t)
	p := h.up("  mode: observe\n  policy: fixed:scalable")
	c := h.connect(0, "")
	h.transfers("observed", c)
	h.uses("observed", c, systemDefault, systemDefault)
	h.eventually(20*time.Second, "the sender is in the daemon's memory, with what would be done", func() bool {
		return slices.ContainsFunc(h.status(p).Sockets, func(s SocketStatus) bool {
			return s.Local.String() == c.server.LocalAddr().String() && s.Algorithm == systemDefault && s.Wanted == "scalable"
		})
	})
	if counters := h.status(p).Counters; counters["attached"] != 0 {
		t.Errorf("counters %v, want none attached", counters)
	}
}

// Of what is only observed the default policy knows a transfer from bursts, and the round trip at which it loses.
func TestObservesTransfer(t *testing.T) {
	h := newHost(t)
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.tool("tc -n " + h.ns + " qdisc add dev lo root tbf rate 20mbit burst 5k latency 30ms")
	p := h.up("  mode: observe")
	transfer, bursts := h.connect(0, ""), h.connect(0, "")
	go func() { _ = send(transfer.server, 0, 1<<30) }() // until the test ends
	go func() { _, _ = io.Copy(io.Discard, transfer.client) }()
	_, quiet := h.keepSending([]pair{bursts}, 20_000, 300*time.Millisecond)
	defer quiet()
	lost := uint32(0)
	h.eventually(40*time.Second, "the transfer is known as one, with losses at a full queue, and the bursts are none", func() bool {
		found := 0
		for _, s := range h.status(p).Sockets {
			switch {
			case s.Local.String() == transfer.server.LocalAddr().String() && s.Last.Bulk:
				lost = max(lost, s.Last.RTTAtLossUs)
				found++
			case s.Local.String() == bursts.server.LocalAddr().String() && !s.Last.Bulk:
				found++
			}
		}
		return found == 2 && lost > 10_000
	})
}
