package daemon

import (
	"testing"
	"time"
)

// When a routing protocol moves the way to the next hop of best paths, they follow within some seconds, not with the next comparison of everything, which is minutes away with a full table.
func TestEgressNextHopMoves(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	s.installed()
	to := func(gateway string) {
		s.ip("-n " + s.ns + " -6 route replace " + hopAddress + "/128 via " + gateway + " dev e0 metric 50 proto ospf")
	}
	to("2001:db8:1::3")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 via 2001:db8:1::3 dev e0 ") // perhaps by such a comparison: the next one is 10 s away
	to("2001:db8:1::4")
	began := time.Now()
	s.has(true, plaitsRoutes, "2001:db8:c::/48 via 2001:db8:1::4 dev e0 ")
	if took := time.Since(began); took > repairEvery/2 {
		t.Errorf("the best path followed the way to its next hop after %v", took)
	}
	_, err := p.Stop(t.Context())
	s.must(err)
}
