package daemon

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// A daemon that stands still loses its connections, and takes them again when it goes on.
func TestStandsStill(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	quiet := h.busy([]pair{c})
	uses := func(name string) func() bool {
		return func() bool { _, server := h.congestion(c); return server == name }
	}
	h.must(p.cmd.Process.Signal(syscall.SIGSTOP))
	h.eventually(2*stale, "the sender is back on "+systemDefault, uses(systemDefault))
	meanwhile := h.connect(0, "")
	h.uses("made meanwhile", meanwhile, systemDefault, systemDefault)
	h.must(p.cmd.Process.Signal(syscall.SIGCONT))
	h.eventually(2*stale, "the sender is taken again", uses(bpf.Name))
	quiet()
	h.eventually(20*time.Second, "both ends of the one made meanwhile are taken", func() bool { // sockets are taken one after the other
		client, server := h.congestion(meanwhile)
		return client == bpf.Name && server == bpf.Name
	})
}

// A connection that has left stays in its group: held out by another lot, it would be among those because it sent at that moment.
func TestStandsStillKeepsGroups(t *testing.T) {
	h := newHost(t)
	p := h.up("  holdout_percent: 50")
	var managed []pair
	for len(managed) < 10 {
		c := h.connect(0, "")
		if _, server := h.congestion(c); server == bpf.Name {
			managed = append(managed, c)
		}
	}
	for range 6 { // of neither group, for its application asks for plait
		c := h.connect(0, "")
		onSocket(h, c.server, func(fd int) error {
			return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, bpf.Name)
		})
		managed = append(managed, c)
	}
	quiet := h.busy(managed)
	all := func(name string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(managed, func(c pair) bool { _, server := h.congestion(c); return server != name })
		}
	}
	h.must(p.cmd.Process.Signal(syscall.SIGSTOP))
	h.eventually(2*stale, "the senders are back on "+systemDefault, all(systemDefault))
	h.must(p.cmd.Process.Signal(syscall.SIGCONT))
	h.eventually(2*stale, "the senders are taken again", all(bpf.Name))
	quiet()
}

// One that stands still while it visits all sockets writes a heartbeat before it looks how long that was.
func TestStandsStillVisiting(t *testing.T) {
	h := newHost(t)
	var log bytes.Buffer
	d := h.inside(takeAll, &log)
	h.in(d.tick)
	if strings.Contains(log.String(), "plait stood still") {
		t.Errorf("it did not, and says: %s", log.String())
	}
	d.kernel.control.HeartbeatNs -= uint64(2 * stale)
	h.must(d.kernel.beating(func() error { time.Sleep(2 * beatEvery); return nil }))
	h.in(d.tick)
	if d.stood != 1 || !strings.Contains(log.String(), "plait stood still for 1") {
		t.Errorf("connections that have left are not taken again: %s", log.String())
	}
}
