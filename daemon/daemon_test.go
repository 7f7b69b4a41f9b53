package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// Ports of the servers that rules are for.
const (
	portOff  = 5301
	portNew  = 5302
	portMany = 5303
)

const takeAll = "  holdout_percent: 0"

// Which connections plait takes.
func TestTakes(t *testing.T) {
	h := newHost(t)
	before, chosenBefore := h.connect(0, ""), h.connect(0, otherChoice)
	h.enter(h.outside)
	otherBefore := h.connect(0, "")
	h.enter(h.cgroup)
	p := h.up(fmt.Sprintf("%s\n  rules:\n    - {port: %d, mode: off}", takeAll, portOff))
	taken := h.connect(0, "")
	h.uses("new", taken, bpf.Name, bpf.Name)
	h.transfers("new", taken)
	h.uses("chosen by the application", h.connect(0, otherChoice), otherChoice, otherChoice)
	h.uses("the default, chosen by the application", h.connect(0, systemDefault), systemDefault, systemDefault)
	h.uses("to a port that is off", h.connect(portOff, ""), bpf.Name, systemDefault)
	h.enter(h.outside)
	other := h.connect(0, "")
	h.enter(h.cgroup)
	h.uses("of another cgroup", other, systemDefault, systemDefault)
	h.uses("before plait came up", before, bpf.Name, bpf.Name)
	h.uses("chosen by the application before plait came up", chosenBefore, otherChoice, otherChoice)
	h.uses("of another cgroup, before plait came up", otherBefore, systemDefault, systemDefault)
	c := h.status(p).Counters
	if c["attached"] != 5 || c["held_out"] != 0 || c["refused"] != 0 {
		t.Errorf("counters %v, want 5 attached: both ends of two connections, one of another", c)
	}
}

// A transfer that is under way when plait comes up is known as one, although nobody has seen its beginning.
func TestTakesTransfer(t *testing.T) {
	h := newHost(t)
	h.ip("-n " + h.ns + " link set lo mtu 1500")
	h.tool("tc -n " + h.ns + " qdisc add dev lo root tbf rate 20mbit burst 5k latency 100ms")
	c, rival := h.connect(0, ""), h.connect(0, otherChoice) // which keeps the queue full, so that something is in flight at all times
	for _, p := range []pair{c, rival} {
		go func() { _ = send(p.server, 0, 1<<30) }() // until the test ends
		go func() { _, _ = io.Copy(io.Discard, p.client) }()
	}
	time.Sleep(500 * time.Millisecond) // of traffic
	p := h.up(takeAll)
	h.eventually(40*time.Second, "the transfer gets what suits transfers", func() bool {
		return slices.ContainsFunc(h.status(p).Sockets, func(s SocketStatus) bool {
			return s.Local.String() == c.server.LocalAddr().String() && s.Last.Bulk
		})
	})
}

// A transfer whose reader is slow stands still again and again. That is no idle time after which it would be something else.
func TestSlowReader(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	h.must(c.client.SetReadBuffer(64 << 10))
	go func() { _ = send(c.server, 0, 1<<30) }() // until the test ends
	const fast, chunk = 8 << 20, 64 << 10
	h.must(receive(c.client, 0, fast))
	before := h.status(p).Counters["switches"]
	for at := fast; at < fast+100*chunk; at += chunk {
		h.must(receive(c.client, at, chunk))
		time.Sleep(10 * time.Millisecond)
	}
	if n := h.status(p).Counters["switches"] - before; n > 5 {
		t.Errorf("%d changes of congestion control, want next to none", n)
	}
}

// All connections held out: none is taken, all are counted.
func TestHoldout(t *testing.T) {
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	const n = 20
	for range n {
		h.uses("held out", h.connect(0, ""), systemDefault, systemDefault)
	}
	if c := h.status(p).Counters; c["attached"] != 0 || c["held_out"] != 2*n {
		t.Errorf("counters %v, want %d held out", c, 2*n)
	}
}

// Bursts of held-out connections are timed: they are what plait is compared with.
func TestHeldOutBursts(t *testing.T) {
	rung.Netns(t)
	mayTrace(t)
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	c := h.connect(0, "")
	for i := range 20 {
		h.must(send(c.server, i*1000, 1000))
		h.must(receive(c.client, i*1000, 1000))
		h.acknowledged(c.server)
	}
	prefixes := h.status(p).Prefixes
	if len(prefixes) != 1 || prefixes[0].Holdout.Bursts < 15 || prefixes[0].Managed.Bursts != 0 {
		t.Errorf("%+v, want one prefix with 20 bursts held out", prefixes)
	}
}

// In mode off plait does nothing: such connections are not held out from anything.
func TestOff(t *testing.T) {
	h := newHost(t)
	p := h.up("  mode: off")
	c := h.connect(0, "")
	h.uses("off", c, systemDefault, systemDefault)
	h.transfers("off", c)
	if s := h.status(p); s.Counters["held_out"] != 0 || s.Counters["attached"] != 0 || len(s.Sockets) != 0 || len(s.Prefixes) != 0 {
		t.Errorf("%+v, want nothing counted and nothing measured", s)
	}
}

// The daemon forgets every connection that ends or leaves, also those that no hook was there for when they were made.
func TestForgets(t *testing.T) {
	h := newHost(t)
	before := h.connect(0, "")
	p := h.up(takeAll)
	after, asks, leaves := h.connect(0, ""), h.connect(0, bpf.Name), h.connect(0, "")
	all := []pair{before, after, asks, leaves}
	for _, c := range all {
		h.uses("at first", c, bpf.Name, bpf.Name)
	}
	known := func(c pair) bool {
		policy, _ := h.wanted(p, c.server.LocalAddr().String())
		return policy != ""
	}
	h.eventually(20*time.Second, "the daemon knows all senders", func() bool {
		for _, c := range all {
			h.must(transfer(c, 1000))
		}
		return !slices.ContainsFunc(all, func(c pair) bool { return !known(c) })
	})
	for _, c := range all[:3] {
		c.close()
	}
	raw, err := leaves.server.SyscallConn()
	h.must(err)
	h.must(chosen(otherChoice)("", "", raw))
	h.eventually(20*time.Second, "the daemon knows none of them", func() bool { return !slices.ContainsFunc(all, known) })
	h.reload(p, takeAll)
	h.uses("which left", leaves, bpf.Name, otherChoice)
}

// After down connections carry on, on the default, and nothing is left.
func TestDown(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	busy, idle, own, closing := h.connect(0, ""), h.connect(0, ""), h.connect(0, otherChoice), h.connect(0, "")
	// The server has closed its side, and nobody has read what it wrote: half of it waits to be sent.
	const last = 4 << 20
	h.stalls(closing, last)
	h.must(closing.server.CloseWrite())
	h.uses("before", busy, bpf.Name, bpf.Name)
	const before, after = 64 << 20, 8 << 20
	received := make(chan error, 1)
	go func() { received <- receive(busy.client, 0, before+after) }()
	down := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		<-begun
		_, err := p.Stop(t.Context())
		down <- err
	}()
	h.must(send(busy.server, 0, before/2))
	close(begun)
	h.must(send(busy.server, before/2, before/2)) // while it goes down
	h.must(<-down)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the daemon ended with %v: %s", err, &p.said)
	}
	h.uses("after down", busy, systemDefault, systemDefault)
	h.uses("idle, after down", idle, systemDefault, systemDefault)
	h.uses("chosen by the application", own, otherChoice, otherChoice)
	h.uses("closed while it sends", closing, systemDefault, systemDefault)
	h.must(receive(closing.client, 0, last))
	h.must(send(busy.server, before, after))
	h.must(<-received)
	h.transfers("idle, after down", idle)
	h.uses("new, after down", h.connect(0, ""), systemDefault, systemDefault)
	h.clean("after down")
	if _, err := os.Lstat(p.Path()); err == nil {
		t.Error("the control socket is still there")
	}
}

// The daemon ends in order also with samples on their way to it.
func TestDownBusy(t *testing.T) {
	h := newHost(t)
	var pairs []pair
	for range 50 {
		pairs = append(pairs, h.connect(0, ""))
	}
	quiet := h.busy(pairs)
	defer quiet()
	for range 5 {
		p := h.up(takeAll)
		time.Sleep(300 * time.Millisecond) // of traffic
		_, err := p.Stop(t.Context())
		h.must(err)
		if err := p.cmd.Wait(); err != nil {
			t.Fatalf("the daemon ended with %v: %s", err, &p.said)
		}
	}
}

// heartbeat is when the daemon last told the kernel half that it lives.
func (h *host) heartbeat() (ns uint64) {
	h.Helper()
	spec, _, err := bpf.Load()
	h.must(err)
	v := spec.Variables["plait_daemon"]
	m := h.mapOf(v.SectionName)
	section := make([]byte, m.ValueSize())
	h.must(m.Lookup(uint32(0), section))
	var c bpf.Control
	_, err = binary.Decode(section[v.Offset:], binary.NativeEndian, &c)
	h.must(err)
	return c.HeartbeatNs
}

// The daemon is killed while connections are busy: all bytes arrive, and connections return to the default by themselves.
func TestKilled(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	linked := h.status(p).Linked
	const connections = 4
	var pairs []pair
	for range connections {
		c := h.connect(0, "")
		h.uses("before", c, bpf.Name, bpf.Name)
		pairs = append(pairs, c)
	}
	quiet := h.busy(pairs)
	time.Sleep(300 * time.Millisecond) // of traffic
	p.kill()
	begin, beat := time.Now(), h.heartbeat()
	if linked {
		h.eventually(time.Minute, "the name is gone from "+available, func() bool { return !registered() })
	} else {
		h.Cleanup(func() { h.cleanup(p) })
	}
	h.uses("new, after the kill", h.connect(0, ""), systemDefault, systemDefault)
	// The last heartbeat may be as old as beatEvery when the daemon dies, or older on a busy host, so connections leave a little before stale is over.
	h.eventually(stale+20*time.Second, "all senders are back on "+systemDefault, func() bool {
		return !slices.ContainsFunc(pairs, func(c pair) bool { _, server := h.congestion(c); return server != systemDefault })
	})
	silent := time.Duration(monotonicNs() - beat)
	t.Logf("back on %s after %.1f s, %.1f s after the last heartbeat", systemDefault, time.Since(begin).Seconds(), silent.Seconds())
	if silent < stale {
		t.Errorf("back %v after the last heartbeat, when a daemon that is only slow may still live", silent)
	}
	quiet()
	for _, c := range pairs {
		c.close() // receivers, which send nothing, do not notice: they keep the programs
	}
	if linked {
		h.clean("after its connections have ended")
	}
}

// A second daemon that would take connections is refused, and does no harm to the first.
func TestSecondDaemon(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	programs := h.programs()
	for name, second := range map[string]struct{ control, says string }{
		"same control socket":    {p.Path(), "another plait is up, or comes up or goes down at this moment; see plait status, and stop it with plait down"},
		"another control socket": {filepath.Join(h.dir, "other"), "another plait is up, with another control socket"},
	} {
		_, err := h.try(second.control, takeAll)
		if err == nil || !strings.Contains(err.Error(), second.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q in it", name, err, second.says)
		}
		if _, err := os.Lstat(filepath.Join(h.dir, "other")); err == nil {
			t.Errorf("%s: its control socket is left", name)
		}
		if now := h.programs(); !slices.Equal(now, programs) {
			t.Errorf("%s: programs in the kernel are\n%v, before they were\n%v", name, now, programs)
		}
		if s := h.status(p); s.PID != p.cmd.Process.Pid || s.Mode != On {
			t.Errorf("%s: the first one answers %+v", name, s)
		}
		h.uses(name+", new", h.connect(0, ""), bpf.Name, bpf.Name)
		h.uses(name+", open", c, bpf.Name, bpf.Name)
	}
	h.transfers("with the first daemon", c)
}

// A second daemon that leaves connections alone comes up, as a namespace that only copies ACKs needs it, and leaves alone those of the first, too: when it comes, when it goes, and when it is told to
// take some.
func TestSecondDaemonOff(t *testing.T) {
	h := newHost(t)
	h.up(takeAll)
	c := h.connect(0, "")
	second, err := h.try(filepath.Join(h.dir, "other"), "  mode: off")
	h.must(err)
	h.uses("beside it, new", h.connect(0, ""), bpf.Name, bpf.Name)
	h.uses("beside it, open", c, bpf.Name, bpf.Name)
	h.write(second.config, filepath.Join(h.dir, "other"), takeAll)
	if err := second.Reload(); err == nil || !strings.Contains(err.Error(), "takes effect when plait starts") {
		t.Errorf("told to take connections: %v", err)
	}
	_, err = second.Stop(t.Context())
	h.must(errors.Join(err, second.cmd.Wait()))
	h.uses("after it, open", c, bpf.Name, bpf.Name)
	h.transfers("with the first daemon", c)
}

// Who has asked before plait goes down gets an answer.
func TestAnswersBeforeTheEnd(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	file, err := os.Open(p.config)
	h.must(err)
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGIO)
	defer signal.Stop(opened)
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK) // whoever opens the file waits until it is closed here: so long a reload is under way
	h.must(err)
	answer := make(chan error, 1)
	go func() { answer <- p.Reload() }()
	select {
	case <-opened:
	case <-time.After(10 * time.Second):
		t.Fatal("the daemon does not read its configuration")
	}
	h.must(p.cmd.Process.Signal(unix.SIGTERM))
	time.Sleep(1500 * time.Millisecond) // of work
	h.must(file.Close())
	if err := <-answer; err != nil {
		t.Errorf("reload: %v, want that it succeeded: plait was up", err)
	}
	h.must(p.cmd.Wait())
	h.clean("after the end")
}

// Two daemons that start at once both find the name free. One comes up, the other says the same as one that comes later.
func TestTwoAtOnce(t *testing.T) {
	h := newHost(t)
	var all sync.WaitGroup
	var up [2]*process
	var refused [2]error
	for i := range up {
		all.Go(func() { up[i], refused[i] = h.try(filepath.Join(h.dir, fmt.Sprint("control", i)), takeAll) })
	}
	all.Wait()
	if (up[0] == nil) == (up[1] == nil) {
		t.Fatalf("want one refused, got %v and %v", refused[0], refused[1])
	}
	if up[0] == nil {
		up[0], refused[1] = up[1], refused[0]
	}
	want := errTaken(true).Error()
	if refused[1].Error() != want {
		t.Errorf("refused with %v, want %v", refused[1], want)
	}
	if _, err := Cleanup(filepath.Join(h.dir, "other"), false); err == nil || err.Error() != want { // before it asks the kernel, which before 6.4 has nothing against it
		t.Errorf("plait down with another control socket: %v, want %v", err, want)
	}
	h.uses("with the one that is up", h.connect(0, ""), bpf.Name, bpf.Name)
	h.must(func() error { _, err := up[0].Stop(t.Context()); return err }())
	h.clean("after down")
}

// A daemon that cannot listen does not touch the kernel.
func TestControlUnwritable(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(h.dir, "file")
	h.must(os.WriteFile(file, nil, 0o600))
	for control, says := range map[string]string{
		"/proc/plait/control":              "make the directory of the control socket: mkdir /proc/plait: no such file or directory; name another path as control in the configuration",
		filepath.Join(file, "control"):     "make the directory of the control socket: mkdir " + file + ": not a directory",
		file:                               "listen on " + file + ": a file is there that is no socket; name another path as control in the configuration",
		"/proc/sys/net/ipv4/plait.control": "open the lock of the control socket: ",
	} {
		_, err := h.try(control, takeAll)
		if err == nil || !strings.HasPrefix(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line that begins with %q", control, err, says)
		}
		h.clean(control)
	}
}

// Many short connections: none fails, each end is counted once, and the daemon remembers none of them.
func TestShortConnections(t *testing.T) {
	h := newHost(t)
	const n, workers, holdout = 5000, 8, 0.2
	p := h.up(fmt.Sprintf("  holdout_percent: %g", holdout*100))
	begin := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range n / workers {
				c, err := h.connectTo(fmt.Sprintf("127.0.0.%d", 2+w), portMany, h.ns, "")
				if err == nil {
					err = transfer(c, 100)
					c.close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d connections in %.1f s", n, time.Since(begin).Seconds())
	h.eventually(10*time.Second, "the daemon remembers no connection", func() bool { return len(h.status(p).Sockets) == 0 })
	c := h.status(p).Counters
	if ends := uint64(2 * n); c["attached"]+c["held_out"] != ends || c["refused"] != 0 || c["samples_dropped"] != 0 || c["fell_back"] != 0 {
		t.Errorf("counters %v, want %d attached or held out, and no trouble", c, ends)
	}
	// The kernel's random numbers have no seed: four standard deviations, one false alarm in 16,000 runs.
	mean, deviation := 2*n*holdout, math.Sqrt(2*n*holdout*(1-holdout))
	if off := math.Abs(float64(c["held_out"]) - mean); off > 4*deviation {
		t.Errorf("%d held out, want %.0f by %.0f", c["held_out"], mean, 4*deviation)
	}
	_, err := p.Stop(t.Context())
	h.must(err)
	h.clean("after down")
}

// Connections of other network namespaces in the same cgroup are taken too, also those that were there before. plait down brings them
// back at once where the namespace can be found; elsewhere they come back by themselves.
func TestOtherNamespace(t *testing.T) {
	h := newHost(t)
	other, hidden := h.second("-2"), h.second("-3")
	before := other.connect(0, "")
	p := h.up(takeAll)
	c, lost := other.connect(0, ""), hidden.connect(0, "")
	h.ip("netns del " + hidden.ns) // only its sockets keep it
	h.uses("of another namespace, before plait", before, bpf.Name, bpf.Name)
	h.uses("of another namespace", c, bpf.Name, bpf.Name)
	h.uses("of one without a name", lost, bpf.Name, bpf.Name)
	_, err := p.Stop(t.Context())
	h.must(err)
	h.uses("of another namespace, after down", before, systemDefault, systemDefault)
	h.uses("of another namespace, after down", c, systemDefault, systemDefault)
	h.uses("of one without a name, after down", lost, bpf.Name, bpf.Name)
	at := 0
	h.eventually(stale+20*time.Second, "the sender is back on "+systemDefault, func() bool {
		h.must(send(lost.server, at, 1000))
		h.must(receive(lost.client, at, 1000))
		at += 1000
		_, server := h.congestion(lost)
		return server == systemDefault
	})
}
