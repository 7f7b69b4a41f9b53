package daemon

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/signals"
)

// Each new connection of a busy server would be a line: a thousand a second fill a disk in days.
func TestChoicesInTheLog(t *testing.T) {
	p, err := compile(Lever{Mode: Observe, Policy: defaultPolicy})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	d := &Daemon{options: Options{Log: &log}, kernel: &kernel{control: bpf.Control{Generation: 1}}, policies: []policy{p}, sockets: map[uint64]*socket{}, ration: newRation("elsewhere")}
	const connections = 20_000
	for i := range uint64(connections) {
		if err := d.act(sample{Sample: signals.Sample{Cookie: i}, generation: 1, observed: true}); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines < linesAtOnce || lines > connections/2 || !strings.Contains(log.String(), "left out here") {
		t.Errorf("%d lines about %d connections", lines, connections)
	}
	if len(d.sockets) != connections {
		t.Errorf("%d connections are known, want %d", len(d.sockets), connections)
	}
}

// What a map has no room for is tried again; nothing else is taken for that.
func TestFull(t *testing.T) {
	for errno, want := range map[error]bool{unix.E2BIG: true, unix.ENOSPC: true, unix.ENOMEM: true, unix.EBADF: false, unix.EPERM: false} {
		if got := full(fmt.Errorf("write choice: %w", errno)); got != want {
			t.Errorf("%v: %v, want %v", errno, got, want)
		}
	}
}
