package daemon

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// heldOut is how many bursts of held-out connections are in the comparison.
func (h *host) heldOut(p *process) (n uint64) {
	h.Helper()
	for _, d := range h.status(p).Prefixes {
		n += d.Holdout.Bursts
	}
	return n
}

// A held-out connection whose application chooses a congestion control later is not on the system's default any more, and what it does says nothing about that.
func TestHeldOutChoosesLater(t *testing.T) {
	rung.Netns(t)
	mayTrace(t)
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	c := h.connect(0, "")
	sends := func() {
		for range 10 {
			h.must(transfer(c, 1000))
			h.acknowledged(c.server)
		}
	}
	sends()
	before := h.heldOut(p)
	if before < 8 {
		t.Fatalf("%d bursts are held out, want 10", before)
	}
	h.choose(c.server, otherChoice)
	sends()
	if n := h.heldOut(p); n != before {
		t.Errorf("%d bursts of another congestion control count as those of the system's default", n-before)
	}
	h.choose(c.server, systemDefault)
	sends()
	if n := h.heldOut(p); n != before {
		t.Errorf("%d bursts count after its application has chosen the default, want none: one that plait manages would be compared no more", n-before)
	}
}

// A held-out connection whose application names the default, as many servers do with each they accept, is not compared from then on, as one that plait managed is not,
// and rules that change do not take it. What plait itself has set says nothing of the application.
func TestHeldOutChoosesDefault(t *testing.T) {
	h := newHost(t)
	d := h.inside("  holdout_percent: 100", new(bytes.Buffer))
	c, other := h.connect(0, ""), h.connect(0, "")
	said := func(c pair, want string) {
		t.Helper()
		h.says(h.why(d, c), systemDefault, want)
	}
	said(c, "held out: ")
	h.choose(c.server, systemDefault)
	said(c, "held out until its application chose that")
	said(other, "held out: ")
	reload := func(congestion string) {
		h.write(d.options.ConfigPath, h.dir+"/control", congestion)
		h.in(d.Reload)
	}
	reload("  mode: off")
	reload(takeAll)
	h.uses("its application chose the default", c, bpf.Name, systemDefault)
	h.uses("its application did not", other, bpf.Name, bpf.Name)
	reload("  mode: off")
	h.uses("rules of no connection", other, systemDefault, systemDefault)
	reload(takeAll)
	h.uses("given back by plait", other, bpf.Name, bpf.Name)
}

// What a held-out connection sends from a file (sendfile, splice; kTLS sends so, too) is a burst as any.
func TestHeldOutSendsFile(t *testing.T) {
	rung.Netns(t)
	mayTrace(t)
	h := newHost(t)
	p := h.up("  holdout_percent: 100")
	c := h.connect(0, "")
	const bursts, bytes = 20, 10000
	path := filepath.Join(h.dir, "file")
	h.must(os.WriteFile(path, pattern[:bytes], 0o600))
	for range bursts {
		f, err := os.Open(path)
		h.must(err)
		_, err = io.Copy(c.server, f)
		h.must(err)
		f.Close()
		h.must(receive(c.client, 0, bytes))
		h.acknowledged(c.server)
	}
	if n := h.heldOut(p); n < bursts-5 {
		t.Errorf("%d bursts are held out, want %d", n, bursts)
	}
}

// Not every host lets anybody put programs at the entry of its kernel's functions; the lab's guest does.
func TestHeldOutInGuest(t *testing.T) {
	t.Parallel() // with the one below: a guest has one processor
	rung.Guest(t, "6.12", "PLAIT_TEST=netns ./tests -test.v -test.timeout 110s -test.run '^Test(HeldOutBursts|HeldOutChoosesLater|NothingIsNoBurst|BurstsBeginWhenWritten)$'")
}

// Before Linux 6.5 files have a way of their own.
func TestHeldOutSendsFileInGuest(t *testing.T) {
	t.Parallel()
	rung.Guest(t, "6.1", "PLAIT_TEST=netns ./tests -test.v -test.timeout 110s -test.run '^TestHeldOut(SendsFile|Bursts)$'")
}
