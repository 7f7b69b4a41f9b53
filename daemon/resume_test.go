package daemon

import (
	"syscall"
	"testing"

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
	h.eventually(stale, "both ends of the one made meanwhile are taken", func() bool { // sockets are taken one after the other
		client, server := h.congestion(meanwhile)
		return client == bpf.Name && server == bpf.Name
	})
}
