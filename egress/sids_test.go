package egress

import (
	"fmt"
	"net/netip"
	"testing"
)

// Of an exit's SIDs there are so many at a time and no more; what has one of these, and other exits, are not concerned.
func TestSIDs(t *testing.T) {
	p, err := NewPlan(three)
	if err != nil {
		t.Fatal(err)
	}
	told := func(i, sid int, route bool) []Change {
		u := Update{Key: Key{Reflector: netip.MustParseAddr("2001:db8::1"), Distinguisher: "65000:1", Prefix: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/48", 0x1000+i))}}
		if route {
			u.Route = &Route{RouteTargets: []string{three[0].RouteTarget}, SID: netip.MustParseAddr(fmt.Sprintf("2001:db8:f1:1::%x", sid+1)), NextHop: netip.MustParseAddr("2001:db8::a"), LocalPref: 100}
		}
		return p.Apply([]Update{u})
	}
	for i := range mostSIDs {
		if len(told(i, i, true)) != 1 {
			t.Fatalf("route %d with a SID of its own is not used: %+v", i, p.Refusals())
		}
	}
	if c := told(mostSIDs, mostSIDs, true); len(c) != 0 {
		t.Errorf("one SID more is used: %+v", c)
	}
	if r := p.Refusals(); len(r) != 1 || r[0].Reason != TooManySIDs || r[0].Routes != 1 {
		t.Errorf("refused: %+v, want one route", r)
	}
	if len(told(mostSIDs+1, 0, true)) != 1 {
		t.Error("another route to a SID there is is not used")
	}
	if told(0, 0, false); len(told(mostSIDs+2, mostSIDs, true)) != 0 {
		t.Error("a SID was given up while a route has it")
	}
	if told(mostSIDs+1, 0, false); len(told(mostSIDs, mostSIDs, true)) != 1 {
		t.Errorf("told again when there is room: not used, refused are %+v", p.Refusals())
	}
}
