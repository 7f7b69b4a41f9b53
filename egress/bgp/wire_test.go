package bgp

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// What the tests say as a reflector is built here.

const testAS = 65000

var (
	hostID      = netip.MustParseAddr("10.0.0.9")
	reflectorID = netip.MustParseAddr("10.0.0.1")
	borderID    = netip.MustParseAddr("10.0.0.11")
	borderHop   = netip.MustParseAddr("2001:db8:1::11")
	mappedHop   = netip.MustParseAddr("::ffff:192.0.2.11")
)

// announcement is an UPDATE in the making. Its zero value is filled by announced.
type announcement struct {
	family   Family
	prefixes []string
	pathIDs  []uint32 // of the prefixes; none: 0
	rd       string
	targets  []string
	labels   []uint32 // of the prefixes; the last one goes on
	nextHop  netip.Addr
	asPath   []uint32
	path     []wire.AsPathParamInterface // instead of asPath
	sid      *wire.SRv6InformationSubTLV
	extra    []wire.PathAttributeInterface
	without  wire.BGPAttrType
}

// vpn is a VPNv6 route as FRR 10.3 tells it: locator 2001:db8:f1::/48, function 1 transposed into the label.
func vpn(prefixes ...string) announcement {
	return announcement{
		family: VPNv6, prefixes: prefixes, rd: "65000:11", targets: []string{"65000:11"}, labels: []uint32{16},
		nextHop: borderHop, asPath: []uint32{64496, 64500},
		sid: sidInfo("2001:db8:f1::", wire.END_DT6, wire.NewSRv6SIDStructureSubSubTLV(32, 16, 16, 0, 16, 48)),
	}
}

func unicastRoute(prefixes ...string) announcement {
	f := IPv6
	if netip.MustParsePrefix(prefixes[0]).Addr().Is4() {
		f = IPv4
	}
	return announcement{family: f, prefixes: prefixes, nextHop: borderHop, asPath: []uint32{64496}}
}

func sidInfo(sid string, behavior wire.SRBehavior, sub ...wire.PrefixSIDTLVInterface) *wire.SRv6InformationSubTLV {
	return wire.NewSRv6InformationSubTLV(netip.MustParseAddr(sid), behavior, sub...)
}

func l3Service(info *wire.SRv6InformationSubTLV) *wire.PathAttributePrefixSID {
	return wire.NewPathAttributePrefixSID(wire.NewSRv6ServiceTLV(wire.TLVTypeSRv6L3Service, info))
}

func (a announcement) nlri(t testing.TB) []wire.PathNLRI {
	t.Helper()
	var out []wire.PathNLRI
	for i, text := range a.prefixes {
		var id uint32
		if i < len(a.pathIDs) {
			id = a.pathIDs[i]
		}
		prefix := netip.MustParsePrefix(text)
		var nlri wire.NLRI
		var err error
		if a.rd == "" {
			nlri, err = wire.NewIPAddrPrefix(prefix)
		} else {
			rd, e := wire.ParseRouteDistinguisher(a.rd)
			must(t, e)
			label := uint32(implicitNull)
			if len(a.labels) > 0 {
				label = a.labels[min(i, len(a.labels)-1)]
			}
			nlri, err = wire.NewLabeledVPNIPAddrPrefix(prefix, *wire.NewMPLSLabelStack(label), rd)
		}
		must(t, err)
		out = append(out, wire.PathNLRI{NLRI: nlri, ID: id})
	}
	return out
}

func (a announcement) message(t testing.TB) *wire.BGPMessage {
	t.Helper()
	reach, err := wire.NewPathAttributeMpReachNLRI(wireFamilies[a.family], a.nlri(t), a.nextHop)
	must(t, err)
	path := a.path
	if path == nil {
		path = []wire.AsPathParamInterface{wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, a.asPath)}
	}
	attrs := []wire.PathAttributeInterface{
		wire.NewPathAttributeOrigin(0),
		wire.NewPathAttributeAsPath(path),
		wire.NewPathAttributeLocalPref(200),
	}
	if len(a.targets) > 0 {
		var list []wire.ExtendedCommunityInterface
		for _, text := range a.targets {
			if rest, ok := strings.CutPrefix(text, "4200000000:"); ok { // gobgp reads 4 octets in the notation with a dot only
				local, err := strconv.Atoi(rest)
				must(t, err)
				list = append(list, wire.NewFourOctetAsSpecificExtended(wire.EC_SUBTYPE_ROUTE_TARGET, 4200000000, uint16(local), true))
				continue
			}
			rt, err := wire.ParseRouteTarget(text)
			must(t, err)
			list = append(list, rt)
		}
		attrs = append(attrs, wire.NewPathAttributeExtendedCommunities(list))
	}
	if a.sid != nil {
		attrs = append(attrs, l3Service(a.sid))
	}
	attrs = append(append(attrs, a.extra...), reach)
	var kept []wire.PathAttributeInterface
	for _, attr := range attrs {
		if a.without == 0 || attr.GetType() != a.without {
			kept = append(kept, attr)
		}
	}
	return wire.NewBGPUpdateMessage(nil, kept, nil)
}

func (a announcement) withdrawal(t testing.TB) *wire.BGPMessage {
	t.Helper()
	unreach, err := wire.NewPathAttributeMpUnreachNLRI(wireFamilies[a.family], a.nlri(t))
	must(t, err)
	return wire.NewBGPUpdateMessage(nil, []wire.PathAttributeInterface{unreach}, nil)
}

// encode returns the bytes of a message. addPath tells whether its NLRI have path IDs.
func encode(t testing.TB, m *wire.BGPMessage, addPath bool) []byte {
	t.Helper()
	options := &wire.MarshallingOption{ExtendedMessage: true, AddPath: map[wire.Family]wire.BGPAddPathMode{}}
	if addPath {
		for _, f := range wireFamilies {
			options.AddPath[f] = wire.BGP_ADD_PATH_BOTH
		}
	}
	raw, err := m.Serialize(options)
	must(t, err)
	return raw
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ownHop is an address of this host.
var ownHop = netip.MustParseAddr("2001:db8:1::10")

func testScope() scope {
	return scope{as: testAS, routerID: hostID, reflector: reflectorID, agreed: [families]bool{true, true, true, true}, own: map[netip.Addr]bool{ownHop: true}}
}

// heard is what the speaker makes of the bytes of a message.
func heard(t testing.TB, raw []byte, addPath bool) ([]change, int, error) {
	t.Helper()
	a := &agreement{agreed: [families]bool{true, true, true, true}}
	a.options.AddPath = map[wire.Family]wire.BGPAddPathMode{}
	if addPath {
		for _, f := range wireFamilies {
			a.options.AddPath[f] = wire.BGP_ADD_PATH_RECEIVE
		}
	}
	return understand(nil, raw[18], raw[wire.BGP_HEADER_LENGTH:], a, testScope(), newInterner())
}
