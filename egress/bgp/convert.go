package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

// defaultLocalPref is the degree of preference of a route without LOCAL_PREF.
const defaultLocalPref = 100

// routeKey is an egress.Key of one reflector and family in 32 bytes: the speaker holds one for each route.
type routeKey struct {
	addr          [16]byte
	distinguisher [8]byte
	pathID        uint32
	bits          uint8
	v4            bool
	distinguished bool // it is a VPN route's
}

// change is what an UPDATE says about one route.
type change struct {
	family  Family
	key     routeKey
	route   *egress.Route // nil: withdrawn, or refused
	refused refusal
}

// scope is what the meaning of an UPDATE depends on besides itself.
type scope struct {
	as        uint32
	routerID  netip.Addr // of this host
	reflector netip.Addr // router ID of the reflector
	agreed    [families]bool
	own       map[netip.Addr]bool // addresses of this host
}

// attributes are those of an UPDATE that count here.
type attributes struct {
	route       egress.Route // without SID and, for VPN routes, next hop
	sid         *wire.SRv6InformationSubTLV
	communities []wire.ExtendedCommunityInterface
	loop        bool // the AS path has the AS of this network in it
}

// convert appends to out what the UPDATE says, withdrawals first. broken is what the parser found wrong, if the routes could be
// read all the same: then they are refused. It changes nothing but the interner.
func convert(out []change, u *wire.BGPUpdate, broken error, s scope, n *interner) []change {
	for _, nlri := range u.WithdrawnRoutes {
		out = append(out, withdraw(IPv4, nlri))
	}
	a := readAttributes(u, s.as)
	var reach *wire.PathAttributeMpReachNLRI
	for _, attr := range u.PathAttributes {
		switch attr := attr.(type) {
		case *wire.PathAttributeMpUnreachNLRI:
			if f := familyOf(wire.NewFamily(attr.AFI, attr.SAFI)); f >= 0 {
				for _, nlri := range attr.Value {
					out = append(out, withdraw(Family(f), nlri))
				}
			}
		case *wire.PathAttributeMpReachNLRI:
			reach = attr
		}
	}
	discarded := isDiscard(broken)
	announce := func(f Family, nlris []wire.PathNLRI, nextHop netip.Addr) {
		if len(nlris) == 0 {
			return
		}
		common, refused := a.check(f, nextHop, s, n)
		if broken != nil && !discarded || !complete(u, f) {
			refused = malformed
		}
		out = a.announce(out, f, nlris, common, refused, n)
	}
	if reach != nil {
		if f := familyOf(wire.NewFamily(reach.AFI, reach.SAFI)); f >= 0 {
			announce(Family(f), reach.Value, reach.Nexthop)
		}
	}
	announce(IPv4, u.NLRI, a.route.NextHop)
	return out
}

// isDiscard reports whether the parser found wrong only an attribute that may be left out (RFC 7606 section 2).
func isDiscard(err error) bool {
	m, ok := errors.AsType[*wire.MessageError](err)
	return ok && m.ErrorHandling == wire.ERROR_HANDLING_ATTRIBUTE_DISCARD
}

// complete reports whether the mandatory attributes are there (RFC 4271 section 5).
func complete(u *wire.BGPUpdate, f Family) bool {
	var origin, path, nextHop bool
	for _, attr := range u.PathAttributes {
		switch attr := attr.(type) {
		case *wire.PathAttributeOrigin:
			origin = attr.Value <= 2
		case *wire.PathAttributeAsPath:
			path = true
		case *wire.PathAttributeNextHop:
			nextHop = true
		case *wire.PathAttributeMpReachNLRI:
			nextHop = nextHop || familyOf(wire.NewFamily(attr.AFI, attr.SAFI)) == int(f)
		}
	}
	return origin && path && nextHop
}

func readAttributes(u *wire.BGPUpdate, as uint32) attributes {
	a := attributes{route: egress.Route{LocalPref: defaultLocalPref}}
	for _, attr := range u.PathAttributes {
		switch attr := attr.(type) {
		case *wire.PathAttributeOrigin:
			a.route.Origin = attr.Value
		case *wire.PathAttributeAsPath:
			a.route.ASPath = asPath(attr)
			a.loop = slices.ContainsFunc(attr.Value, func(segment wire.AsPathParamInterface) bool { return slices.Contains(segment.GetAS(), as) })
		case *wire.PathAttributeNextHop:
			a.route.NextHop = attr.Value
		case *wire.PathAttributeMultiExitDisc:
			a.route.MED = attr.Value
		case *wire.PathAttributeLocalPref:
			a.route.LocalPref = attr.Value
		case *wire.PathAttributeOriginatorId:
			a.route.RouterID = attr.Value
		case *wire.PathAttributeExtendedCommunities:
			a.communities = attr.Value
		case *wire.PathAttributePrefixSID:
			a.sid = serviceSID(attr)
		}
	}
	return a
}

// check returns the route as far as it is common to all NLRI of the family, or why all of them are refused.
func (a *attributes) check(f Family, nextHop netip.Addr, s scope, n *interner) (egress.Route, refusal) {
	r := a.route
	r.NextHop = nextHop.Unmap()
	switch {
	case !s.agreed[f]:
		return r, otherFamily
	case !r.NextHop.IsValid() || r.NextHop.IsUnspecified() || r.NextHop.IsMulticast() || r.NextHop.IsLoopback():
		return r, badNextHop
	case f <= IPv6 && r.NextHop.Is6() && r.NextHop.IsLinkLocalUnicast(): // of a border router's neighbour, on a link that this host is not on
		return r, badNextHop
	case f == IPv6 && r.NextHop.Is4(): // a VPN route goes to its SID, whatever its next hop is
		return r, mappedNextHop
	case f <= IPv6 && s.own[r.NextHop]:
		return r, ownNextHop
	case r.RouterID == s.routerID:
		return r, ownOriginator
	case a.loop:
		return r, ownAS
	case len(r.ASPath) > maxList || len(a.communities) > maxList:
		return r, tooLong
	}
	if !r.RouterID.IsValid() {
		r.RouterID = s.reflector
	}
	if f == VPNv4 || f == VPNv6 {
		if a.sid == nil {
			return r, noSID
		}
		if r.RouteTargets = routeTargets(a.communities, n); len(r.RouteTargets) == 0 {
			return r, noRouteTarget
		}
	}
	return r, accepted
}

// announce appends a change for each NLRI. All share one Route, unless their labels make different SIDs.
func (a *attributes) announce(out []change, f Family, nlris []wire.PathNLRI, common egress.Route, refused refusal, n *interner) []change {
	var shared *egress.Route
	var sharedLabel uint32
	for _, nlri := range nlris {
		key, label, ok := keyOf(nlri)
		if !ok {
			continue
		}
		c := change{family: f, key: key, refused: refused}
		switch {
		case c.refused != accepted:
		case !unicast(key):
			c.refused = badPrefix
		case binary.BigEndian.Uint16(key.distinguisher[:]) > wire.BGP_RD_FOUR_OCTET_AS: // the parser has dropped the rest of it
			c.refused = badDistinguisher
		}
		if c.refused == accepted && (shared == nil || label != sharedLabel) {
			r := common
			if f == VPNv4 || f == VPNv6 {
				r.SID, c.refused = sidOf(a.sid, f, label)
			}
			if c.refused == accepted {
				shared, sharedLabel = n.route(&r), label
			}
		}
		if c.refused == accepted {
			c.route = shared
		}
		out = append(out, c)
	}
	return out
}

func withdraw(f Family, nlri wire.PathNLRI) change {
	key, _, _ := keyOf(nlri)
	return change{family: f, key: key}
}

// keyOf returns the key of an NLRI, and its label if it is a VPN route's.
func keyOf(nlri wire.PathNLRI) (key routeKey, label uint32, ok bool) {
	var prefix netip.Prefix
	switch v := nlri.NLRI.(type) {
	case *wire.IPAddrPrefix:
		prefix = v.Prefix
	case *wire.LabeledVPNIPAddrPrefix:
		prefix = v.Prefix
		rd, err := v.RD.Serialize()
		if err != nil || len(rd) != len(key.distinguisher) {
			return key, 0, false
		}
		copy(key.distinguisher[:], rd)
		key.distinguished = true
		if len(v.Labels.Labels) > 0 {
			label = v.Labels.Labels[0]
		}
	}
	if !prefix.IsValid() {
		return key, 0, false
	}
	key.addr, key.bits, key.v4 = prefix.Addr().As16(), uint8(prefix.Bits()), prefix.Addr().Is4()
	key.pathID = nlri.ID
	return key, label, true
}

func (k routeKey) prefix() netip.Prefix {
	addr := netip.AddrFrom16(k.addr)
	if k.v4 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, int(k.bits))
}

// unicast reports whether packets can be routed by the prefix: fe80::/10 and ff00::/8 are not, 224.0.0.0/4 neither.
func unicast(k routeKey) bool {
	addr := k.prefix().Addr()
	return !addr.IsMulticast() && !addr.IsLinkLocalUnicast()
}

// asPath lays the segments out in one row. Of a set only the first AS is taken, so that the length is as RFC 4271 counts it;
// segments of a confederation are inside this network and do not count (RFC 5065).
func asPath(attr *wire.PathAttributeAsPath) []uint32 {
	var out []uint32
	for _, segment := range attr.Value {
		list := segment.GetAS()
		switch segment.GetType() {
		case wire.BGP_ASPATH_ATTR_TYPE_SEQ:
			out = append(out, list...)
		case wire.BGP_ASPATH_ATTR_TYPE_SET:
			out = append(out, list[:min(1, len(list))]...)
		}
	}
	return out
}

// routeTargets returns the route targets among the communities, as in 65000:11.
func routeTargets(communities []wire.ExtendedCommunityInterface, n *interner) []string {
	var encoded []byte
	for _, c := range communities {
		if _, sub := c.GetTypes(); sub == wire.EC_SUBTYPE_ROUTE_TARGET {
			if raw, err := c.Serialize(); err == nil {
				encoded = append(encoded, raw...)
			}
		}
	}
	return n.routeTargets(encoded, func() (out []string) {
		for _, c := range communities {
			switch c := c.(type) {
			case *wire.TwoOctetAsSpecificExtended:
				if c.SubType == wire.EC_SUBTYPE_ROUTE_TARGET {
					out = append(out, fmt.Sprintf("%d:%d", c.AS, c.LocalAdmin))
				}
			case *wire.IPv4AddressSpecificExtended:
				if c.SubType == wire.EC_SUBTYPE_ROUTE_TARGET {
					out = append(out, fmt.Sprintf("%s:%d", c.IPv4, c.LocalAdmin))
				}
			case *wire.FourOctetAsSpecificExtended:
				if c.SubType == wire.EC_SUBTYPE_ROUTE_TARGET {
					out = append(out, fmt.Sprintf("%d:%d", c.AS, c.LocalAdmin))
				}
			}
		}
		return out
	})
}

// distinguisherWords writes a route distinguisher as in 65000:11 (RFC 4364 section 4.2); of an unknown type, its bytes. One of type 2 with an AS number that
// fits into type 0 is another one, and is written as in 0.65000:11 (RFC 5396, asdot+).
func distinguisherWords(rd [8]byte) string {
	long, short := binary.BigEndian.Uint32(rd[2:6]), binary.BigEndian.Uint16(rd[6:8])
	switch binary.BigEndian.Uint16(rd[:2]) {
	case wire.BGP_RD_TWO_OCTET_AS:
		return strconv.Itoa(int(binary.BigEndian.Uint16(rd[2:4]))) + ":" + strconv.FormatUint(uint64(binary.BigEndian.Uint32(rd[4:8])), 10)
	case wire.BGP_RD_IPV4_ADDRESS:
		return netip.AddrFrom4([4]byte(rd[2:6])).String() + ":" + strconv.Itoa(int(short))
	case wire.BGP_RD_FOUR_OCTET_AS:
		as := strconv.FormatUint(uint64(long), 10)
		if long <= 65535 {
			as = "0." + as
		}
		return as + ":" + strconv.Itoa(int(short))
	default:
		return fmt.Sprintf("%x", rd)
	}
}
