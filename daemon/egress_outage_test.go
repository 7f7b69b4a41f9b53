package daemon

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/egress"
)

// witnessed has exit a fail a client in each of three networks, as far as is needed to ask whether it is out.
func (x *exits) witnessed(t *testing.T, now time.Time) {
	t.Helper()
	for n := range 3 {
		x.outages.Witness("a", netip.MustParsePrefix(fmt.Sprintf("2001:db8:d%d::/48", n)), now)
	}
}

// said says whether the journal's last line has a text.
func (x *exits) said(t *testing.T, text string) {
	t.Helper()
	all := x.lines()
	if len(all) == 0 || !strings.Contains(all[len(all)-1].Text, text) {
		t.Errorf("the journal is %v, want %q at its end", all, text)
	}
}

// An exit that is out is not in the main table and stands by for all clients, and is back when something has arrived through it.
func TestExitOut(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	now := time.Now()
	x.witnessed(t, now)
	if x.goesOut("a", now); !x.outages.Out("a") {
		t.Fatal("the exit is not out")
	}
	x.said(t, "exit a does not bring packets to clients in 3 networks, and nothing that is sent through it arrives any more: it is out for all clients, for 5s")
	<-x.misplaced
	if x.replace(t.Context()); x.plan.MainExit(chooser) != "b" {
		t.Errorf("the main table leads through %q, want b", x.plan.MainExit(chooser))
	}
	if got := x.roles(500, 80); got != "10+ a- b+= c+" {
		t.Errorf("roles are %q", got)
	}
	if got := x.explain(chooser); !strings.Contains(got.Ways[0].StandsBy, "it is out") {
		t.Errorf("explained by %+v", got.Ways[0])
	}
	x.joined(chooser, netip.MustParseAddr("2001:db8:1::a"))
	x.revive(now.Add(5*time.Second - 1))
	if !x.outages.Out("a") {
		t.Error("it is back before its hold-down is over")
	}
	x.revive(now.Add(5 * time.Second))
	x.said(t, "exit a is out no more: something arrived through it")
	<-x.misplaced
	if x.replace(t.Context()); x.plan.MainExit(chooser) != "a" || x.roles(500, 80) != "10+ a+= b+ c+" {
		t.Errorf("the main table leads through %q, roles are %q", x.plan.MainExit(chooser), x.roles(500, 80))
	}
}

// What the configuration allows is not gone beyond for an exit that seems out, and there must be another.
func TestExitStaysIn(t *testing.T) {
	for want, prepare := range map[string]func(*exits){
		"as much leaves by other exits as moved_percent allows": func(x *exits) { x.moved = true },
		"all other exits are out, or at their caps": func(x *exits) {
			x.full["b"] = true
			x.outages.Witness("c", netip.MustParsePrefix("2001:db8:d::/48"), time.Now())
			x.outages.Begin("c", time.Now())
		},
	} {
		x := choosing(t, Service{egress.Throughput, 0})
		now := time.Now()
		x.witnessed(t, now)
		prepare(x)
		if x.goesOut("a", now); x.outages.Out("a") || len(x.misplaced) > 0 {
			t.Errorf("it is out, though %s", want)
		}
		x.said(t, want)
	}
}

// Prefixes with traffic follow first.
func TestBusyFirst(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	x.measuredRTT(1, 40, 30, 20)
	x.measuredRTT(2, 40, 30, 20)
	did, passed := x.traffic.Did()
	busy := netip.MustParsePrefix("2001:db8:c::/48")
	x.networks.Look(maps.Values(did), func(netip.Addr) netip.Prefix { return busy }, passed)
	prefixes := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:d::/48"), busy}
	if x.busyFirst(prefixes); prefixes[0] != busy {
		t.Errorf("the order is %v", prefixes)
	}
}

// Only flows of a look that began after an exit went out are a sign of its life.
func TestAcknowledged(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	x.measuredRTT(1, 40, 30, 20)
	x.measuredRTT(2, 40, 30, 20)
	now := time.Now()
	x.witnessed(t, now)
	x.outages.Begin("a", now)
	for _, c := range []struct {
		from time.Duration
		back bool
	}{{-time.Second, false}, {time.Second, true}} {
		x.acknowledged(now.Add(c.from))
		if x.revive(now.Add(time.Minute)); x.outages.Out("a") == c.back {
			t.Errorf("flows of a look that began %v after the exit went out: out %v", c.from, x.outages.Out("a"))
		}
	}
}
