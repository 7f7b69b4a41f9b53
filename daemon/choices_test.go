package daemon

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

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

// A sample says how far apart they are while that is more than the policies' period: in the log, too, or a replay would choose otherwise.
func TestSamplesSayHowRareTheyAre(t *testing.T) {
	p, err := compile(Lever{Mode: Observe, Policy: defaultPolicy})
	if err != nil {
		t.Fatal(err)
	}
	var signalLog strings.Builder
	d := &Daemon{options: Options{Log: io.Discard, SignalLog: &signalLog}, kernel: &kernel{control: bpf.Control{Generation: 1}}, policies: []policy{p}, sockets: map[uint64]*socket{}, ration: newRation("elsewhere")}
	for every, want := range map[time.Duration]string{minSampleEvery: "", 4 * minSampleEvery: `"every_us":800000`, maxSampleEvery: `"every_us":60000000`} {
		d.every = every
		signalLog.Reset()
		clear(d.sockets) // the sample after a rare one may have begun when they were rare
		if err := d.act(sample{Sample: signals.Sample{Cookie: 1}, generation: 1, observed: true}); err != nil {
			t.Fatal(err)
		}
		if line := signalLog.String(); !strings.Contains(line, want) || strings.Contains(line, "every_us") != (want != "") {
			t.Errorf("every %v: the log has %s", every, line)
		}
		if got := d.sockets[1].last.EveryUs; (got > 0) != (want != "") {
			t.Errorf("every %v: the policy is told %d us", every, got)
		}
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
