package bgp

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

func TestConvert(t *testing.T) {
	route := egress.Route{
		SID: netip.MustParseAddr("2001:db8:f1:1::"), RouteTargets: []string{"65000:11"}, NextHop: borderHop, LocalPref: 200,
		ASPath: []uint32{64496, 64500}, RouterID: reflectorID,
	}
	originator, err := wire.NewPathAttributeOriginatorId(borderID)
	must(t, err)
	for name, c := range map[string]struct {
		say  func(*announcement)
		want func(*egress.Route)
	}{
		"as FRR tells it": {},
		"the originator of a reflected route": {
			func(a *announcement) { a.extra = []wire.PathAttributeInterface{originator} },
			func(r *egress.Route) { r.RouterID = borderID }},
		"MED": {
			func(a *announcement) { a.extra = []wire.PathAttributeInterface{wire.NewPathAttributeMultiExitDisc(7)} },
			func(r *egress.Route) { r.MED = 7 }},
		"no LOCAL_PREF": {
			func(a *announcement) { a.without = wire.BGP_ATTR_TYPE_LOCAL_PREF },
			func(r *egress.Route) { r.LocalPref = 100 }},
		"route targets of all three kinds": {
			func(a *announcement) { a.targets = []string{"65000:11", "192.0.2.1:5", "4200000000:7"} },
			func(r *egress.Route) { r.RouteTargets = []string{"65000:11", "192.0.2.1:5", "4200000000:7"} }},
		"VPNv4 with an IPv6 next hop": {
			func(a *announcement) {
				a.family, a.prefixes = VPNv4, []string{"192.0.2.0/24"}
				a.sid = sidInfo("2001:db8:f1:2::", wire.END_DT46)
			},
			func(r *egress.Route) { r.SID = netip.MustParseAddr("2001:db8:f1:2::") }},
		"VPNv6 with an IPv4 next hop, which nothing needs": {
			func(a *announcement) { a.nextHop = mappedHop },
			func(r *egress.Route) { r.NextHop = mappedHop.Unmap() }},
		"unicast has neither SID nor route targets": {
			func(a *announcement) { a.family, a.rd = IPv6, "" },
			func(r *egress.Route) { r.SID, r.RouteTargets = netip.Addr{}, nil }},
	} {
		a, want := vpn("2001:db8:c::/48"), route
		if c.say != nil {
			c.say(&a)
			c.want(&want)
		}
		changes, end, err := heard(t, encode(t, a.message(t), false), false)
		if err != nil || end != -1 || len(changes) != 1 {
			t.Fatalf("%s: got %v, end %d, error %v", name, changes, end, err)
		}
		got := changes[0]
		if got.route == nil || !reflect.DeepEqual(*got.route, want) {
			t.Errorf("%s: got %+v (refused: %q), want %+v", name, got.route, got.refused, want)
		}
		if got.family != a.family || got.key.prefix().String() != a.prefixes[0] || got.key.distinguished != (a.rd != "") {
			t.Errorf("%s: got key %+v of %s", name, got.key, got.family)
		}
	}
}

func TestASPath(t *testing.T) {
	path := wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{
		wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_CONFED_SEQ, []uint32{65001, 65002}),
		wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64496, 4200000000}),
		wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SET, []uint32{64500, 64501}),
	})
	if got, want := asPath(path), []uint32{64496, 4200000000, 64500}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One route is refused, those beside it in the UPDATE are not, where that can be told apart.
func TestRefused(t *testing.T) {
	linkLocal := netip.MustParseAddr("fe80::1")
	own, err := wire.NewPathAttributeOriginatorId(hostID)
	must(t, err)
	for name, c := range map[string]struct {
		say  func(*announcement)
		want []refusal
	}{
		"good":              {func(*announcement) {}, []refusal{accepted, accepted}},
		"no SID":            {func(a *announcement) { a.sid = nil }, []refusal{noSID, noSID}},
		"one label is null": {func(a *announcement) { a.labels = []uint32{implicitNull, 32} }, []refusal{badLabel, accepted}},
		"no route target":   {func(a *announcement) { a.targets = nil }, []refusal{noRouteTarget, noRouteTarget}},
		"next hop zero":     {func(a *announcement) { a.nextHop = netip.IPv6Unspecified() }, []refusal{badNextHop, badNextHop}},
		"IPv4 next hop":     {func(a *announcement) { a.family, a.rd, a.nextHop = IPv6, "", mappedHop }, []refusal{mappedNextHop, mappedNextHop}},
		"link-local hop":    {func(a *announcement) { a.family, a.rd, a.nextHop = IPv6, "", linkLocal }, []refusal{badNextHop, badNextHop}},
		"one of a VPN":      {func(a *announcement) { a.nextHop = linkLocal }, []refusal{accepted, accepted}},
		"own next hop":      {func(a *announcement) { a.family, a.rd, a.nextHop = IPv6, "", ownHop }, []refusal{ownNextHop, ownNextHop}},
		"of a VPN route":    {func(a *announcement) { a.nextHop = ownHop }, []refusal{accepted, accepted}},
		"own AS":            {func(a *announcement) { a.asPath = []uint32{64496, testAS} }, []refusal{ownAS, ownAS}},
		"own AS in a set": {func(a *announcement) {
			a.path = []wire.AsPathParamInterface{wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64496}), wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SET, []uint32{64500, testAS})}
		}, []refusal{ownAS, ownAS}},
		"own router ID":     {func(a *announcement) { a.extra = []wire.PathAttributeInterface{own} }, []refusal{ownOriginator, ownOriginator}},
		"link-local prefix": {func(a *announcement) { a.prefixes[1] = "fe80::/64" }, []refusal{accepted, badPrefix}},
		"no ORIGIN":         {func(a *announcement) { a.without = wire.BGP_ATTR_TYPE_ORIGIN }, []refusal{malformed, malformed}},
		"no AS_PATH":        {func(a *announcement) { a.without = wire.BGP_ATTR_TYPE_AS_PATH }, []refusal{malformed, malformed}},
		"256 targets": {func(a *announcement) {
			for i := range maxList {
				a.targets = append(a.targets, fmt.Sprint("65000:", i))
			}
		}, []refusal{tooLong, tooLong}},
		"L2 service": {func(a *announcement) {
			a.extra = []wire.PathAttributeInterface{wire.NewPathAttributePrefixSID(wire.NewSRv6ServiceTLV(wire.TLVTypeSRv6L2Service, a.sid))}
			a.sid = nil
		}, []refusal{noSID, noSID}},
	} {
		a := vpn("2001:db8:c::/48", "2001:db8:d::/48")
		c.say(&a)
		changes, _, err := heard(t, encode(t, a.message(t), false), false)
		if err != nil || len(changes) != 2 {
			t.Fatalf("%s: got %d changes, error %v", name, len(changes), err)
		}
		for i, got := range changes {
			if got.refused != c.want[i] || (got.route == nil) != (got.refused != accepted) {
				t.Errorf("%s: route %d: got refused %q, route %v; want %q", name, i, got.refused, got.route, c.want[i])
			}
		}
	}
}

// A path may have so many AS numbers and no more.
func TestLongPath(t *testing.T) {
	for n, want := range map[int]refusal{maxList: accepted, maxList + 1: tooLong} {
		a := attributes{route: egress.Route{ASPath: slices.Repeat([]uint32{64496}, n)}}
		if _, got := a.check(IPv6, borderHop, testScope(), newInterner()); got != want {
			t.Errorf("%d AS numbers: refused %q, want %q", n, got, want)
		}
	}
}

// An IPv4 route by an IPv6 neighbour without numbers (RFC 8950) has such a next hop, too. One of IPv4 may be on the host's own network.
func TestLinkLocalNextHop(t *testing.T) {
	for hop, want := range map[string]refusal{"fe80::1": badNextHop, "169.254.0.1": accepted} {
		if _, got := new(attributes).check(IPv4, netip.MustParseAddr(hop), testScope(), newInterner()); got != want {
			t.Errorf("%s: refused %q, want %q", hop, got, want)
		}
	}
}

func TestRefusedFamily(t *testing.T) {
	raw := encode(t, vpn("2001:db8:c::/48").message(t), false)
	sc := testScope()
	sc.agreed[VPNv6] = false
	changes, _, err := understand(nil, raw[18], raw[19:], &agreement{}, sc, newInterner())
	if err != nil || len(changes) != 1 || changes[0].refused != otherFamily {
		t.Errorf("got %+v, error %v", changes, err)
	}
}

// Bytes of an attribute are broken: its routes are refused (RFC 7606), or the attribute is left out, and the session lives.
func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		kind byte
		harm func(value []byte)
		want refusal
	}{
		"ORIGIN 9":                 {1, func(v []byte) { v[0] = 9 }, malformed},
		"AS_PATH without end":      {2, func(v []byte) { v[1] = 200 }, malformed},
		"AS_PATH of no type":       {2, func(v []byte) { v[0] = 99 }, malformed},
		"SID sub-TLV too long":     {40, func(v []byte) { v[5] = 200 }, noSID},
		"SID sub-TLV too short":    {40, func(v []byte) { v[5], v[6] = 0, 5 }, noSID},
		"service TLV too long":     {40, func(v []byte) { v[1] = 200 }, noSID},
		"structure of wrong size":  {40, func(v []byte) { v[len(v)-7] = 5 }, noSID},
		"structure too long":       {40, func(v []byte) { v[len(v)-8] = 99 }, noSID},
		"service TLV of no length": {40, func(v []byte) { v[1], v[2] = 0, 0 }, noSID},
	} {
		raw := encode(t, vpn("2001:db8:c::/48").message(t), false)
		c.harm(attribute(t, raw, c.kind))
		changes, _, err := heard(t, raw, false)
		if err != nil || len(changes) != 1 || changes[0].refused != c.want {
			t.Errorf("%s: got %+v, error %v; want refused %q", name, changes, err, c.want)
		}
	}
}

// attribute returns the value of the attribute in the bytes of an UPDATE without withdrawals in the old field.
func attribute(t *testing.T, raw []byte, kind byte) []byte {
	t.Helper()
	for rest := raw[wire.BGP_HEADER_LENGTH+4:]; len(rest) > 3; {
		head, length := 3, int(rest[2])
		if rest[0]&byte(wire.BGP_ATTR_FLAG_EXTENDED_LENGTH) != 0 {
			head, length = 4, int(rest[2])<<8|int(rest[3])
		}
		if rest[1] == kind {
			return rest[head : head+length]
		}
		rest = rest[head+length:]
	}
	t.Fatalf("no attribute %d in %x", kind, raw)
	return nil
}

// What cannot be read at all ends the session, in words.
func TestUnreadable(t *testing.T) {
	twice := vpn("2001:db8:c::/48").message(t)
	body := twice.Body.(*wire.BGPUpdate)
	body.PathAttributes = append(body.PathAttributes, body.PathAttributes[len(body.PathAttributes)-1])
	broken := encode(t, vpn("2001:db8:c::/48").message(t), false)
	attribute(t, broken, 14)[4+8+16] = 255 // length of the next hop is at 3, of the first prefix behind it
	reach := attribute(t, broken, 14)
	reach[3] = 77
	nextHop, err := wire.NewPathAttributeNextHop(netip.MustParseAddr("192.0.2.11"))
	must(t, err)
	hidden := encode(t, wire.NewBGPUpdateMessage(nil, []wire.PathAttributeInterface{
		wire.NewPathAttributeOrigin(0), wire.NewPathAttributeAsPath(nil), nextHop,
	}, unicastRoute("192.0.2.0/24").nlri(t)), false)
	hidden[len(hidden)-4-5] = 200 // of NEXT_HOP, in front of 4 bytes of NLRI: the parser does not get to them
	for name, raw := range map[string][]byte{
		"routes twice": encode(t, twice, false), "next hop of 77 bytes": broken, "routes behind an attribute without end": hidden,
	} {
		if changes, _, err := heard(t, raw, false); err == nil || len(changes) != 0 {
			t.Errorf("%s: got %v, want an error", name, changes)
		} else if _, ok := err.(*protocolError); !ok { //nolint:errorlint // these are not wrapped
			t.Errorf("%s: got %T %v", name, err, err)
		}
	}
}

func TestWithdrawnAndEndOfRIB(t *testing.T) {
	a := vpn("2001:db8:c::/48")
	a.pathIDs = []uint32{7}
	announced, _, err := heard(t, encode(t, a.message(t), true), true)
	must(t, err)
	a.labels = []uint32{wire.WITHDRAW_LABEL}
	withdrawn, _, err := heard(t, encode(t, a.withdrawal(t), true), true)
	must(t, err)
	if len(announced) != 1 || len(withdrawn) != 1 || announced[0].key != withdrawn[0].key || withdrawn[0].route != nil || announced[0].key.pathID != 7 {
		t.Errorf("announced %+v, withdrawn %+v: the keys differ", announced, withdrawn)
	}
	for f := range Family(families) {
		changes, end, err := heard(t, encode(t, wire.NewEndOfRib(wireFamilies[f]), false), false)
		if err != nil || len(changes) != 0 || end != int(f) {
			t.Errorf("end of RIB of %s: got %d, %v, error %v", f, end, changes, err)
		}
	}
}

// Prefixes of an UPDATE share their route, and equal routes of other UPDATEs are the same one.
func TestShared(t *testing.T) {
	n := newInterner()
	hear := func(a announcement) []change {
		raw := encode(t, a.message(t), false)
		out, _, err := understand(nil, raw[18], raw[19:], &agreement{}, testScope(), n)
		must(t, err)
		return out
	}
	first, second := hear(vpn("2001:db8:c::/48", "2001:db8:d::/48")), hear(vpn("2001:db8:e::/48"))
	if first[0].route != first[1].route || first[0].route != second[0].route {
		t.Errorf("equal routes are not shared")
	}
	other := vpn("2001:db8:f::/48")
	other.asPath = []uint32{64497}
	if got := hear(other); got[0].route == first[0].route {
		t.Errorf("different routes are shared")
	}
}

// A panic on a message costs the session and says so.
func TestSurvive(t *testing.T) {
	var err error
	func() {
		defer survive(wire.BGP_MSG_UPDATE, []byte{1, 2, 3}, &err)
		panic("index out of range")
	}()
	if e, ok := err.(*protocolError); !ok || e.code != wire.BGP_ERROR_UPDATE_MESSAGE_ERROR { //nolint:errorlint // these are not wrapped
		t.Errorf("got %v", err)
	}
}
