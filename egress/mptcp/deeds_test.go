package mptcp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// deeds are what was done since the last call, a line each.
func (r *rig) deeds() string {
	var out []string
	for _, d := range r.m.Deeds() {
		out = append(out, fmt.Sprint(d.Command, " ", d.Addr, ": ", d.Why, ": ", d.Times, " ", len(d.Clients), " ", d.More))
	}
	return strings.Join(out, "\n")
}

// All that the kernel did is told with its reason, alike in one, however many connections there are; what it refused is not.
func TestDeeds(t *testing.T) {
	why := "strategy"
	r := newRig(t, Config{ChangesPerSecond: 1e6, Why: func(Peer, netip.Addr) string { return why }})
	tells := func(want ...string) {
		t.Helper()
		if got := r.deeds(); got != strings.Join(want, "\n") {
			t.Errorf("told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	const many = 1000
	client := func(i int) string { return fmt.Sprintf("10.0.%d.%d:1000", i/250, i%250+1) }
	r.reach(a4, b4)
	for i := range many {
		r.handle(r.open(uint32(i+1), "192.0.2.1:80", client(i))...)
	}
	tells("0 192.0.2.11: it reaches the client: 1000 3 true", "0 192.0.2.12: it reaches the client: 1000 3 true")
	for i := range 2 {
		r.handle(r.join(uint32(i+1), a4+":80", client(i)), r.join(uint32(i+1), b4+":80", client(i)))
	}
	tells()
	r.reach(a4, b4+"*")
	r.m.Act(map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true, netip.MustParseAddr("10.0.0.2"): true}, r.now)
	tells("3 192.0.2.12: strategy: 2 2 false")
	r.reach(a4)
	why = "it fails"
	r.m.Act(map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true}, r.now)
	tells("1 192.0.2.12: it fails: 1 1 false", "2 192.0.2.12: it fails: 1 1 false")
	r.reach(a4, b4)
	r.now = r.now.Add(time.Second)
	r.refuse = ErrNotOurs
	r.m.Act(map[netip.Addr]bool{netip.MustParseAddr("10.0.0.2"): true}, r.now)
	tells()
}
