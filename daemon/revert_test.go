package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
)

// mapOf opens a map of the daemon's in the kernel.
func (h *host) mapOf(name string) (found *ebpf.Map) {
	h.Helper()
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) && found != nil {
			h.Cleanup(func() { found.Close() })
			return found
		}
		h.must(err) // also at the end: the kernel has none
		id = next
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := m.Info(); err == nil && info.Name == name { // the last one: those of a plait before may not be gone yet
			found, m = m, found
		}
		if m != nil {
			m.Close()
		}
	}
}

// slower writes what the kernel half would have counted if connections to a prefix were twice as slow under a policy as on the
// system's default.
func (h *host) slower(prefix netip.Prefix, policy uint8) {
	h.Helper()
	h.slowerIn(h.mapOf("plait_latencies"), prefix, policy)
}

func (h *host) slowerIn(m *ebpf.Map, prefix netip.Prefix, policy uint8) {
	h.Helper()
	const connections, bursts, bucket = 500, 5000, 40
	of := func(bucket int) bpf.Group {
		h := evenly(connections, bursts/connections, bucket)
		return bpf.Group{Connections: h.Connections, Bursts: bursts, Squares: h.Squares, LogsSquared: h.LogsSquared, Products: h.Products, Buckets: [len(bpf.Group{}.Buckets)]uint64(h.Counts)}
	}
	l := bpf.Latency{Managed: of(bucket + 4), Holdout: of(bucket)} // four buckets are a doubling
	h.must(m.Put(bpf.Prefix{Address: prefix.Addr().As16(), Policy: policy}, l))
}

// slowerMany is slower for n destinations, of connections no rule is for.
func (h *host) slowerMany(d *Daemon, n int) {
	h.Helper()
	for i := range n {
		h.slowerIn(d.kernel.Maps["plait_latencies"], netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), 0)
	}
}

// givenBack is how many destinations are, by the status.
func (d *Daemon) givenBack() (n int) {
	for _, p := range d.Status().Prefixes {
		if p.Reverted {
			n++
		}
	}
	return n
}

// What was given back under a policy that is in force no more is managed, is not shown and takes no room from others; with the policy it is given back again.
func TestRevertedPolicyGoes(t *testing.T) {
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	fill := func(what string, before, after int) {
		t.Helper()
		if n := d.givenBack(); n != before {
			t.Errorf("%s: %d given back, want %d", what, n, before)
		}
		h.slowerMany(d, maxReverted+10)
		h.must(d.revert())
		if n := d.givenBack(); n != after {
			t.Errorf("%s, where many are slower: %d given back, want %d", what, n, after)
		}
	}
	fill("the first policy", 0, maxReverted)
	c := d.config
	c.Congestion.Policy = "fixed:bic"
	h.must(d.install(c))
	fill("another", 0, maxReverted)
	c.Congestion.Rules = []Rule{{Selection: Selection{Selector: "port 1", Ports: []uint16{1}}, Policy: defaultPolicy}}
	h.must(d.install(c))
	fill("both", 2*maxReverted, 2*maxReverted)
}

// Where a policy is slower, it is given up: by connections that exist and by new ones, and after a reload as before. Others go on.
func TestRevert(t *testing.T) {
	h := newHost(t)
	rules := fmt.Sprintf("\n  rules:\n    - {port: %d, policy: fixed:bic}\n    - {port: %d, policy: fixed:htcp}", portOff, portNew)
	p := h.up(takeAll + rules)
	slow, other, plain := h.connect(portOff, ""), h.connect(portNew, ""), h.connect(0, "")
	loopback := netip.MustParsePrefix("127.0.0.0/24")
	h.slower(loopback, 1) // rule 1
	reverted := func(s Status) bool {
		return slices.ContainsFunc(s.Prefixes, func(p PrefixStatus) bool {
			return p.Reverted && p.Prefix == loopback && p.Policy == "fixed:bic" && p.Difference.Verdict == Worse && p.Managed.Connections == 500
		})
	}
	h.eventually(3*compareEvery, "the status says that it is reverted", func() bool { return reverted(h.status(p)) })
	check := func(what string) {
		t.Helper()
		for _, c := range []pair{slow, other, plain} {
			h.must(transfer(c, 1000))
		}
		h.uses(what, slow, bpf.Name, systemDefault)
		h.uses(what+", another rule", other, bpf.Name, bpf.Name)
		h.uses(what+", no rule", plain, bpf.Name, bpf.Name)
		h.uses(what+", new", h.connect(portOff, ""), bpf.Name, systemDefault)
		h.uses(what+", new, another rule", h.connect(portNew, ""), bpf.Name, bpf.Name)
	}
	check("reverted")
	// The policy stays given back under whatever rule; the one that has come into its place has no history.
	h.reload(p, takeAll+fmt.Sprintf("\n  rules:\n    - {port: %d, policy: fixed:htcp}\n    - {port: %d, policy: fixed:bic}", portNew, portOff))
	check("reverted, after a reload")
	if s := h.status(p); !reverted(s) {
		t.Errorf("after a reload the status has %+v, want %s reverted", s.Prefixes, loopback)
	}
	time.Sleep(compareEvery + beatEvery)
	check("reverted, after the next comparison")
	// With another policy the destination gets another chance.
	h.reload(p, takeAll+fmt.Sprintf("\n  rules:\n    - {port: %d, policy: fixed:vegas}", portOff))
	h.uses("with another policy", slow, bpf.Name, bpf.Name)
	_, err := p.Stop(t.Context())
	h.must(err)
	h.must(p.cmd.Wait())
	want := "revert 127.0.0.0/24, policy fixed:bic: bursts take 2.00 times as long as on the system's default (95 % confidence: "
	if n := strings.Count(p.said.String(), "revert "); n != 1 || !strings.Contains(p.said.String(), want) {
		t.Errorf("the log says\n%s\nwant one line with %q", &p.said, want)
	}
}
