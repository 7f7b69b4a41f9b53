package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
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

// What the kernel lacks of the plan is told for as long as that is so: here nothing leads to the next hop of a best path.
func TestEgressLacking(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	lacks := func(want string) {
		s.eventually(20*time.Second, "the kernel lacks "+want, func() bool {
			e, err := p.Egress()
			s.must(err)
			return strings.Contains(e.Lacking, want) && (want == "") == (e.Lacking == "") && (want == "") == !slices.Contains(s.status(p).Warnings, e.Lacking)
		})
	}
	lacks("")
	s.ip("-n " + s.ns + " -6 route add unreachable " + hopAddress + "/128")
	s.say(s.announce(0, "2001:db8:e::/48"))
	lacks("find the way to next hop " + hopAddress)
	s.ip("-n " + s.ns + " -6 route del unreachable " + hopAddress + "/128")
	lacks("")
	_, err := p.Stop(t.Context())
	s.must(err)
}

// A BGP daemon beside plait may announce prefixes of this host, and the reflector tells them plait, too. They are no way to go, and nothing that is tried again and again.
func TestEgressOwnNextHop(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	m := s.announce(0, "2001:db8:e::/48")
	for _, a := range m.Body.(*wire.BGPUpdate).PathAttributes {
		if reach, is := a.(*wire.PathAttributeMpReachNLRI); is {
			reach.Nexthop = netip.MustParseAddr(serverAddress)
		}
	}
	s.say(m, s.announce(0, "2001:db8:f::/48"))
	s.has(true, plaitsRoutes, "2001:db8:f::/48 via ")
	e, err := p.Egress()
	s.must(err)
	if len(e.Refused) != 1 || !strings.HasPrefix(e.Refused[0].Reason, "the next hop is this host") || e.Main != 2 {
		t.Errorf("%d routes in the main table, refused are %+v; want 2, and the route by this host", e.Main, e.Refused)
	}
	log, err := p.EgressLog()
	s.must(err)
	if i := slices.IndexFunc(log, func(e JournalEntry) bool { return strings.Contains(e.Text, "find the way to next hop") }); i >= 0 {
		t.Errorf("the log has: %s", log[i].Text)
	}
	_, err = p.Stop(t.Context())
	s.must(err)
}
