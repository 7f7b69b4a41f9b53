package daemon

import (
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
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
