package egress

import (
	"fmt"
	"net/netip"
	"testing"
)

// What is announced and withdrawn with ever new distinguishers leaves nothing.
func TestSources(t *testing.T) {
	p, err := NewPlan(three)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		u := Update{Key: Key{Reflector: netip.MustParseAddr("2001:db8::1"), Distinguisher: fmt.Sprint("65000:", i), Prefix: netip.MustParsePrefix("2001:db8:c::/48")}}
		u.Route = &Route{RouteTargets: []string{three[0].RouteTarget}, SID: netip.MustParseAddr("2001:db8:f1:1::1"), LocalPref: 100}
		p.Apply([]Update{u})
		if i%2 == 0 {
			u.Route = &Route{RouteTargets: []string{"65000:99"}} // of no exit
			p.Apply([]Update{u})
		}
		u.Route = nil
		p.Apply([]Update{u})
	}
	if len(p.destinations)+len(p.bySource)+len(p.known) > 0 || len(p.sources) > 1 || len(p.sids[0]) > 0 {
		t.Errorf("left: %d destinations, %d sources of %d, %d attributes, %d SIDs", len(p.destinations), len(p.bySource), len(p.sources), len(p.known), len(p.sids[0]))
	}
}
