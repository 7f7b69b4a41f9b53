package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress/bgp"
)

// Reflectors have told all when one has ended each family it agreed on; one that never does is waited for as long as it tells, but not for ever.
func TestTelling(t *testing.T) {
	one, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	up := bgp.Up{Reflector: one, Agreed: [...]bool{bgp.IPv4: true, bgp.IPv6: true, bgp.VPNv6: true}}
	began := time.Unix(1000, 0)
	type step struct {
		afterS  int
		event   bgp.Event
		waits   time.Duration
		changed bool
	}
	for name, steps := range map[string][]step{
		"the last of the agreed families": {
			{1, up, settleAfter, true},
			{1, bgp.EndOfRIB{Reflector: one, Family: bgp.IPv4}, settleAfter, true},
			{8, bgp.Routes{}, settleAfter, true},
			{9, bgp.EndOfRIB{Reflector: one, Family: bgp.VPNv6}, settleAfter, true},
			{20, bgp.EndOfRIB{Reflector: one, Family: bgp.IPv6}, settleQuiet, true},
			{20, bgp.Routes{}, 0, false},
			{20, bgp.Up{Reflector: other, Agreed: up.Agreed}, 0, false},
			{21, bgp.EndOfRIB{Reflector: other, Family: bgp.IPv4}, 0, false},
		},
		"a reflector that goes before it has told all": {
			{1, up, settleAfter, true},
			{2, bgp.EndOfRIB{Reflector: one, Family: bgp.IPv4}, settleAfter, true},
			{3, bgp.Down{Reflector: one}, settleAfter, true},
			{4, up, settleAfter, true},
			{5, bgp.EndOfRIB{Reflector: one, Family: bgp.VPNv6}, settleAfter, true},
			{5, bgp.EndOfRIB{Reflector: one, Family: bgp.IPv6}, settleAfter, true},
			{6, bgp.EndOfRIB{Reflector: one, Family: bgp.IPv4}, settleQuiet, true},
		},
		"one that never ends": {
			{1, up, settleAfter, true},
			{280, bgp.Routes{}, 20 * time.Second, true},
			{301, bgp.Routes{}, 0, true},
		},
	} {
		w := newTelling(began)
		for i, s := range steps {
			if waits, changed := w.hear(s.event, began.Add(time.Duration(s.afterS)*time.Second)); waits != s.waits || changed != s.changed {
				t.Errorf("%s: step %d: waits %v, changed %v; want %v, %v", name, i, waits, changed, s.waits, s.changed)
			}
		}
	}
}

// What a plait before left in the kernel stays until a reflector has told all, and not until it has told all of one family.
func TestEgressToldSlowly(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	s.installed()
	p.kill()
	kept := s.show(plaitsRoutes)
	p = s.up(fmt.Sprintf(egressSection, On))
	s.greet()
	s.say(wire.NewEndOfRib(reflectorFamilies[0])) // it has none of these
	time.Sleep(2 * settleQuiet)
	if now := s.show(plaitsRoutes); !slices.Equal(now, kept) {
		t.Errorf("before the reflector has told all there are %q, want what was there: %q", now, kept)
	}
	s.say(s.announce(2, "2001:db8:d::/48"))
	for _, f := range reflectorFamilies[1:] {
		s.say(wire.NewEndOfRib(f))
	}
	s.has(false, plaitsRoutes, "2001:db8:c::")
	s.has(true, plaitsRoutes, "2001:db8:d::/48 nhid .* table 11201 ")
	_, err := p.Stop(t.Context())
	s.must(err)
	s.must(p.cmd.Wait())
}
