package daemon

import (
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/signals"
)

// What a trial costs a connection counts for the strategy, what a cap costs does not.
func TestComparedDuringTrial(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 50})
	ends := mptcp.Ends{Local: netip.MustParseAddrPort("[2001:db8:1::10]:80"), Remote: netip.AddrPortFrom(chooser, 1000)}
	transfer := func(token uint32) float64 {
		x.roles(token, 80)
		x.transfer(flowTransfer{ends, token, 1 << 20, 500_000})
		x.worth.Tick(time.Now().Add(time.Minute))
		if k := x.known(); len(k) > 0 {
			return k[0].Managed
		}
		return 0
	}
	x.trials[chooser] = "b"
	if got := transfer(9001); got != 1 {
		t.Errorf("%g samples of a connection in a trial, want 1", got)
	}
	delete(x.trials, chooser)
	x.full["b"] = true
	if got := transfer(9002); got != 1 {
		t.Errorf("%g samples after one of a connection that a cap concerns, want 1", got)
	}
	if transfer(10); x.known()[0].HeldOut != 0 {
		t.Errorf("meanwhile %g samples of those held out count, want none", x.known()[0].HeldOut)
	}
	delete(x.full, "b")
	if transfer(11); x.known()[0].HeldOut != 1 {
		t.Errorf("afterwards %g samples of those held out count, want 1", x.known()[0].HeldOut)
	}
}

// A process before this one may have compared a connection that is older: it would count twice.
func TestComparedOnce(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 50})
	for token, earlier := range map[uint32]bool{4999: true, 9001: true, 9002: false} {
		x.reachable(mptcp.Peer{Token: token, Client: chooser, Own: netip.MustParseAddrPort("[2001:db8:1::10]:80"), Earlier: earlier})
		if x.worth.Compares(token) == earlier {
			t.Errorf("connection %d is compared: %v, and older than the process: %v", token, !earlier, earlier)
		}
	}
}

// Who is held out at other times than who is not would be told from them by the hour: with another share of the connections a comparison begins anew, after a reload and in the next process. What was found before stays, and so does what is
// compared under a strategy whose share is as it was.
func TestComparedWithOneShare(t *testing.T) {
	ports := ServiceRule{Selection: Selection{Ports: []uint16{443}}, Service: Service{egress.Latency, 5}}
	x := choosing(t, Service{egress.Throughput, 5}, ports)
	x.memory = t.TempDir() + "/memory.json"
	judged, open := netip.MustParsePrefix("2001:db8:d::/48"), netip.MustParsePrefix("2001:db8:c::/48")
	now := time.Now()
	x.worth = egress.NewWorth([]egress.Known{{Prefix: judged, Strategy: egress.Throughput, OneUntil: now.Add(time.Hour), Rest: 2 * time.Hour, Last: now}}, now)
	x.worth.Join(1, false)
	for _, s := range []egress.Strategy{egress.Throughput, egress.Latency} {
		x.worth.Transfer(1, open, s, 1<<20, 1e6, now)
		x.worth.Tick(now.Add(time.Minute))
	}
	x.keep()
	check := func(when string, known []egress.Known, throughput float64) {
		t.Helper()
		if len(known) != 3 {
			t.Fatalf("%s: known is %+v, want 3", when, known)
		}
		for _, k := range known {
			want := map[egress.Strategy]float64{egress.Throughput: throughput, egress.Latency: 1}[k.Strategy]
			if k.Prefix == judged {
				want = 0
			}
			if k.Managed.Samples != want || k.OneUntil.IsZero() != (k.Prefix == open) {
				t.Errorf("%s: %v, strategy %s: %g samples, one exit until %v; want %g samples", when, k.Prefix, k.Strategy, k.Managed.Samples, k.OneUntil, want)
			}
		}
	}
	check("the next process, nothing else", x.remember().Known(), 1)
	c := x.config
	c.MovedPercent = 50
	x.become(&c)
	check("a reload of something else", x.worth.Known(), 1)
	c.HoldoutPercent = 50
	x.become(&c)
	check("a reload with another share", x.worth.Known(), 0)
	x.config.HoldoutPercent = 50
	check("the next process with another share", x.remember().Known(), 0)
}

// A comparison begins anew under a strategy that comes with other shares, or goes: whoever brings it back may give it others.
func TestComparedAnew(t *testing.T) {
	for _, c := range []struct {
		before, now []float64
		want        float64
	}{{[]float64{5}, []float64{5}, 1}, {[]float64{5}, []float64{50}, 0}, {[]float64{5}, nil, 0}, {nil, []float64{50}, 0}, {nil, nil, 1}} {
		now := time.Now()
		measured := signals.Group{Samples: 1, SamplesSquared: 1}
		worth := egress.NewWorth([]egress.Known{{Prefix: netip.MustParsePrefix("2001:db8:c::/48"), Strategy: egress.Latency, Since: now, Managed: measured}}, now)
		restart(worth, map[egress.Strategy][]float64{egress.Latency: c.before}, map[egress.Strategy][]float64{egress.Latency: c.now}, now)
		if got := worth.Known()[0].Managed.Samples; got != c.want {
			t.Errorf("from %v to %v: %g samples are left, want %g", c.before, c.now, got, c.want)
		}
	}
}
