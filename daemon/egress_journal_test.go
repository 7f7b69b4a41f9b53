package daemon

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// However many routes come and go, decisions stay, in the order of things, and the daemon's log has them.
func TestJournal(t *testing.T) {
	x, at := &exits{journal: newJournal()}, time.Unix(0, 0)
	j := &x.journal
	if x.lines() == nil {
		t.Error("an empty journal is null in JSON")
	}
	j.decisions.add(JournalEntry{at.Add(2*journalLength*time.Millisecond - 1), "decision"})
	for i := range 3 * journalLength {
		j.routes.add(JournalEntry{at.Add(time.Duration(i) * time.Millisecond), fmt.Sprint(i)})
	}
	all := x.lines()
	if len(all) != journalLength+1 || all[0].Text != "decision" || all[1].Text != fmt.Sprint(2*journalLength) || all[journalLength].Text != fmt.Sprint(3*journalLength-1) {
		t.Errorf("%d entries, %q, %q to %q", len(all), all[0].Text, all[1].Text, all[len(all)-1].Text)
	}
	if got := j.decisions.add(JournalEntry{at, "another"}); got != "another" {
		t.Errorf("the daemon's log gets %q of a decision amid changes of routes", got)
	}
}

// What was done to connections is told with its reason, and pushes out no decision.
func TestCommanded(t *testing.T) {
	x := choosing(t, Service{egress.Cheap, 0})
	x.say("decision")
	peer := mptcp.Peer{Token: 1, Client: chooser, Own: netip.MustParseAddrPort("[2001:db8:1::10]:80")}
	addr := func(exit string) netip.Addr { return x.byExit[exit][false] }
	for _, c := range []struct {
		what string
		do   func()
		addr netip.Addr
		want string
	}{
		{"the strategy", func() {}, addr("b"), "strategy cheap"},
		{"the best path's exit", func() {}, addr("a"), "what the connection began on leaves through it already"},
		{"it began there", func() {}, peer.Own.Addr(), "strategy cheap"},
		{"its cap", func() { x.full["b"] = true }, addr("b"), "it carries as much as its cap_mbps of 0 allows"},
		{"it fails", func() { x.health.Fail("b", chooser, time.Now()) }, addr("b"), "packets do not arrive through it"},
		{"it was withdrawn", func() {
			x.plan.Apply([]egress.Update{{Key: egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Distinguisher: "c", Prefix: netip.MustParsePrefix("2001:db8:c::/48")}}})
		}, addr("c"), "no route through it reaches the client"},
	} {
		if c.do(); x.why(peer, c.addr) != c.want {
			t.Errorf("%s: %q, want %q", c.what, x.why(peer, c.addr), c.want)
		}
	}
	for range journalLength {
		x.commands([]mptcp.Done{
			{Deed: mptcp.Deed{Command: mptcp.Announced, Addr: addr("b"), Why: "it reaches the client"}, Extent: mptcp.Extent{Times: 7, Clients: []netip.Addr{chooser, chooser.Next()}, More: true}},
			{Deed: mptcp.Deed{Command: mptcp.Destroyed, Addr: peer.Own.Addr(), Why: "packets do not arrive through it"}, Extent: mptcp.Extent{Times: 1, Clients: []netip.Addr{chooser}}},
		})
	}
	all := x.lines()
	if len(all) != 1+journalLength || all[0].Text != "decision" {
		t.Errorf("%d entries, the first is %q", len(all), all[0].Text)
	}
	for i, want := range []string{
		"announce 2001:db8:1::b, of exit b, to connections of 2001:db8:c::2, 2001:db8:c::3, others (7): it reaches the client",
		"close subflows on 2001:db8:1::10 to 2001:db8:c::2 (1): packets do not arrive through it",
	} {
		if got := all[len(all)-2+i].Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
