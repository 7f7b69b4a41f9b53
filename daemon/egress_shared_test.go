package daemon

import (
	"math"
	"net/netip"
	"testing"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// A flow that is idle, or has just begun, hides neither how the round-trip times of those that bring something move, nor what they bring.
func TestProgressOfIdleFlows(t *testing.T) {
	flow := func(port uint16) mptcp.Ends {
		return mptcp.Ends{Local: netip.MustParseAddrPort("[2001:db8:1::a]:80"), Remote: netip.AddrPortFrom(chooser, port)}
	}
	trial, before, alike := egress.Trial{}, progress{flows: map[mptcp.Ends]did{flow(1): {}, flow(2): {bytes: 1000, rttUs: 61_000}}}, false
	for i, again := 1, egress.LikeEvery; again > 0; i++ {
		queueUs := 40e3 + 20e3*math.Sin(float64(i)/2)
		now := progress{flows: map[mptcp.Ends]did{flow(1): {uint64(i) * 50_000, uint32(queueUs)}, flow(2): before.flows[flow(2)], flow(uint16(2 + i)): {1e6, 90_000}}}
		bytes, rttUs := now.since(before)
		if bytes != 50_000 || math.Abs(rttUs-queueUs) > 1 {
			t.Fatalf("look %d: %v bytes, %v us; want 50000, %v us", i, bytes, rttUs, queueUs)
		}
		before = now
		again, alike = trial.Watch(rttUs, rttUs, true)
	}
	if !alike {
		t.Error("a queue that moves both round-trip times alike is not seen")
	}
}

// Of flows that bring something the round-trip time is the mean over the bytes, and of none there is none.
func TestProgressSince(t *testing.T) {
	flow := func(port uint16) mptcp.Ends { return mptcp.Ends{Remote: netip.AddrPortFrom(chooser, port)} }
	before := progress{flows: map[mptcp.Ends]did{flow(1): {100, 10_000}, flow(2): {100, 10_000}}}
	if bytes, rttUs := before.since(before); bytes != 0 || rttUs != 0 {
		t.Errorf("nothing was done: %v bytes, %v us", bytes, rttUs)
	}
	now := progress{flows: map[mptcp.Ends]did{flow(1): {400, 20_000}, flow(2): {200, 40_000}}}
	if bytes, rttUs := now.since(before); bytes != 400 || rttUs != 25_000 {
		t.Errorf("%v bytes, %v us; want 400 and 25000", bytes, rttUs)
	}
}
