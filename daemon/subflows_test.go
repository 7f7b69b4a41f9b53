package daemon

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/bpf"
)

// Subflows of MPTCP are taken with their first data: before that, the kernel gives them the congestion control of their connection.
func TestTakesSubflows(t *testing.T) {
	h := newHost(t)
	h.multipath = true
	p := h.up(takeAll)
	c := h.connect(0, "")
	h.transfers("an MPTCP connection", c)
	h.eventually(10*time.Second, "the sender's subflow is taken", func() bool {
		return slices.ContainsFunc(h.status(p).Sockets, func(s SocketStatus) bool { return s.Local.String() == c.server.LocalAddr().String() })
	})
	out, err := exec.Command("ip", "netns", "exec", h.ns, "ss", "-tniH", "state", "established").CombinedOutput()
	if err != nil || strings.Count(string(out), " "+bpf.Name+" ") != 1 || !strings.Contains(string(out), "tcp-ulp-mptcp") {
		t.Errorf("%v: want an MPTCP subflow with %s: %s", err, bpf.Name, out)
	}
}

// Bursts of held-out subflows nobody sees begin, so those of managed ones would be compared with other connections.
func TestSubflowsAreNotCompared(t *testing.T) {
	h := newHost(t)
	h.multipath = true
	p := h.up(takeAll)
	c := h.connect(0, "")
	for range 5 {
		h.must(transfer(c, 1000))
		time.Sleep(10 * time.Millisecond) // until it is acknowledged
	}
	if n, taken := h.bursts(p), h.status(p).Counters["attached"]; n != 0 || taken == 0 {
		t.Errorf("of %d connections taken %d bursts are compared, want none of subflows", taken, n)
	}
}
