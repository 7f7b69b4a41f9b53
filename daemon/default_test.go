package daemon

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// anotherDefault is one that a network namespace may have beside the one these tests begin with: what the machine's own may have.
func anotherDefault(t *testing.T) string {
	t.Helper()
	allowed, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(allowed)) {
		if name != systemDefault && name != bpf.Name {
			return name
		}
	}
	t.Skipf("this machine allows no default but %s", allowed)
	return ""
}

// The administrator changes the system's default while plait is up: what is left alone, given back or lost has the new one.
func TestDefaultChanges(t *testing.T) {
	rung.Netns(t)
	another := anotherDefault(t)
	for name, end := range map[string]func(*host, *process, pair){
		"mode off": func(h *host, p *process, _ pair) { h.reload(p, "  mode: off") },
		"down":     func(h *host, p *process, _ pair) { _, err := p.Stop(t.Context()); h.must(err) },
		"kill": func(h *host, p *process, c pair) {
			p.kill()
			quiet := h.busy([]pair{c})
			defer quiet()
			h.eventually(20*time.Second, "the sender leaves", func() bool { _, s := h.congestion(c); return s != bpf.Name })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.up(takeAll)
			c := h.connect(0, "")
			h.in(func() error { return os.WriteFile(current, []byte(another), 0) })
			h.eventually(20*time.Second, "the daemon sees it", func() bool { return h.status(p).Default == another })
			h.uses("taken before", c, bpf.Name, bpf.Name)
			h.uses("new", h.connect(0, ""), bpf.Name, bpf.Name)
			h.uses("on the old one, by its own choice", h.connect(0, systemDefault), systemDefault, systemDefault)
			end(h, p, c)
			if _, server := h.congestion(c); server != another {
				t.Errorf("in the end the server's end uses %s, want %s", server, another)
			}
		})
	}
}

// What connects before the daemon has seen the change is taken then; and what was slower than the old default may not be slower than the new one.
func TestDefaultChangesUnseen(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	old := d.kernel.control.Fallback
	d.kernel.control.Fallback = [16]uint8{}
	copy(d.kernel.control.Fallback[:], otherChoice) // so the one of this namespace is the new one
	h.must(d.kernel.beat(d.every))
	slow := netip.MustParsePrefix("127.0.0.0/24")
	h.slowerIn(d.kernel.Maps["plait_latencies"], slow, 0)
	h.must(d.revert())
	c, own := h.connect(0, ""), h.connect(0, systemDefault)
	h.uses("before the daemon looks", c, systemDefault, systemDefault)
	h.says(h.why(d, c), systemDefault, "or it is the default of its network namespace")
	if n := d.givenBack(); n != 1 {
		t.Errorf("%d destinations are given back, want %s", n, slow)
	}
	h.in(d.tick)
	if now := d.kernel.control.Fallback; now != old {
		t.Fatalf("the default is %s, want %s", name16(now), name16(old))
	}
	if n := d.givenBack(); n != 0 {
		t.Errorf("%d destinations are given back, want none", n)
	}
	h.uses("after it has", c, bpf.Name, bpf.Name)
	h.uses("by its application's choice", own, systemDefault, systemDefault)
	h.uses("new", h.connect(0, ""), bpf.Name, bpf.Name)
}

// A change just before the end counts, too. plait itself is no default to return to.
func TestDefaultChangesLast(t *testing.T) {
	h := newHost(t)
	another := anotherDefault(t)
	p := h.up(takeAll)
	c := h.connect(0, "")
	h.in(func() error { return os.WriteFile(current, []byte(another), 0) })
	_, err := p.Stop(t.Context())
	h.must(err)
	h.uses("after down", c, another, another)
	p = h.up(takeAll)
	c = h.connect(0, "")
	h.in(func() error { return os.WriteFile(current, []byte(bpf.Name), 0) })
	var s Status
	h.eventually(20*time.Second, "a warning that the default is plait itself", func() bool {
		s = h.status(p)
		return len(s.Warnings) > 0 && strings.Contains(s.Warnings[len(s.Warnings)-1], "is plait itself")
	})
	if s.Default != another {
		t.Errorf("default %s, want %s", s.Default, another)
	}
	_, err = p.Stop(t.Context())
	h.must(err)
	h.uses("after the default was plait itself", c, another, another)
}
