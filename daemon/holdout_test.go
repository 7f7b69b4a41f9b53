package daemon

import (
	"maps"
	"slices"
	"testing"

	"plait.dev/plait/bpf"
)

// onDefault are the ends of connections, by number, that are on the system's default.
func (h *host) onDefault(all []pair) map[int]bool {
	h.Helper()
	out := map[int]bool{}
	for i, c := range all {
		client, server := h.congestion(c)
		for side, name := range []string{client, server} {
			if name == systemDefault {
				out[2*i+side] = true
			}
		}
	}
	return out
}

// Who is held out stays so while the share is the same. With another, connections that exist are held out to that share, as new ones are: were they to stay where they are, the
// two groups would differ in how many old connections they have, and that would be compared.
func TestHoldoutShareChanges(t *testing.T) {
	h := newHost(t)
	p := h.up("  holdout_percent: 50")
	const connections = 60
	var all []pair
	for range connections {
		all = append(all, h.connect(0, ""))
	}
	half := h.onDefault(all)
	if n := len(half); n < connections/2 || n > connections*3/2 { // each further from the middle than 5 standard deviations
		t.Errorf("of %d ends %d are held out, want about half", 2*connections, n)
	}
	h.reload(p, "  holdout_percent: 50\n  policy: fixed:bic")
	if now := h.onDefault(all); !maps.Equal(now, half) {
		t.Errorf("another policy: held out are %v, want as before %v", now, half)
	}
	h.reload(p, "  holdout_percent: 10")
	few := h.onDefault(all)
	if n := len(few); n > connections*2/3 { // 8 standard deviations from the middle
		t.Errorf("of %d ends %d are held out, want about 10 %%", 2*connections, n)
	}
	for i := range few {
		if !half[i] {
			t.Errorf("end %d is held out at 10 %%, and was not at 50 %%", i)
		}
	}
	h.reload(p, "  holdout_percent: 50")
	if now := h.onDefault(all); !maps.Equal(now, half) {
		t.Errorf("the share of the beginning: held out are %v, want %v", now, half)
	}
	h.reload(p, "  holdout_percent: 100")
	if now := h.onDefault(all); len(now) != 2*connections {
		t.Errorf("held out are %v, want all", now)
	}
	h.reload(p, takeAll)
	if now := h.onDefault(all); len(now) != 0 {
		t.Errorf("held out are %v, want none", now)
	}
	for _, c := range all {
		h.must(transfer(c, 1000))
		h.acknowledged(c.server)
	}
	var s Group
	for _, d := range h.status(p).Prefixes {
		s.Connections += d.Managed.Connections + d.Holdout.Connections
		s.Bursts += d.Managed.Bursts
	}
	if s.Connections != connections || s.Bursts != connections {
		t.Errorf("%d connections and %d bursts of managed ones are compared, want %d of each: those that send", s.Connections, s.Bursts, connections)
	}
}

// A connection that no pass finds leaves with what it sends next when it is to be held out, and is of no group when it is to be managed.
func TestHoldoutShareChangesUnseen(t *testing.T) {
	h := newHost(t)
	hidden := h.second("-2")
	p := h.up(takeAll)
	c := hidden.connect(0, "")
	h.ip("netns del " + hidden.ns) // only its sockets keep it
	h.reload(p, "  holdout_percent: 100")
	h.uses("before it sends", c, bpf.Name, bpf.Name)
	h.sends(c, 0)
	h.uses("held out", c, bpf.Name, systemDefault)
	if n := h.status(p).Counters["held_out"]; n != 1 {
		t.Errorf("%d connections are held out, want 1", n)
	}
	h.reload(p, takeAll)
	h.sends(c, 3000)
	h.uses("to be managed", c, bpf.Name, systemDefault)
	if all := h.status(p).Prefixes; slices.ContainsFunc(all, func(d PrefixStatus) bool { return d.Holdout.Bursts != 0 }) {
		t.Errorf("%+v: bursts are compared, want none", all)
	}
}
