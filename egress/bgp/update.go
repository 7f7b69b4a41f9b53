package bgp

import (
	"encoding/binary"
	"iter"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// prepare changes the bytes of an UPDATE to what they mean, where the parser is of another opinion. What does not add up is left for the parser to refuse.
func prepare(update []byte, options *wire.MarshallingOption) {
	for head, value := range attributesOf(update) {
		head[0] &^= 0x0f // mean nothing (RFC 4271 section 4.3); the parser refuses an attribute that has one of them
		switch wire.BGPAttrType(head[1]) {
		case wire.BGP_ATTR_TYPE_MP_REACH_NLRI:
			oneLabel(value, true, options)
		case wire.BGP_ATTR_TYPE_MP_UNREACH_NLRI:
			oneLabel(value, false, options)
		}
	}
}

// oneLabel sets the bottom-of-stack bit of all VPN routes in an MP_REACH_NLRI or MP_UNREACH_NLRI. Without the Multiple Labels Capability, which this host does
// not offer, a route has one label of 3 bytes, whatever this bit is, and in a withdrawal none of them mean anything (RFC 8277 sections 2.2 and 2.4). The
// parser goes by the bit: without it, it takes the route distinguisher for more labels, and the route for another one.
func oneLabel(value []byte, reach bool, options *wire.MarshallingOption) {
	if len(value) < 4 {
		return
	}
	family, routes := wire.NewFamily(binary.BigEndian.Uint16(value), value[2]), value[3:]
	if family != wire.RF_IPv4_VPN && family != wire.RF_IPv6_VPN {
		return
	}
	if reach {
		nextHop := 1 + int(routes[0]) + 1 // its length in front, and a reserved byte behind
		routes = routes[min(nextHop, len(routes)):]
	}
	id := 0
	if wire.IsAddPathEnabled(true, family, []*wire.MarshallingOption{options}) {
		id = 4
	}
	for len(routes) > id+3 {
		routes[id+3] |= 1
		route := id + 1 + (int(routes[id])+7)/8
		routes = routes[min(route, len(routes)):]
	}
}

// attributesOf goes through the path attributes in the bytes of an UPDATE (RFC 4271 section 4.3), flags and type, and value, as far as the lengths add up.
func attributesOf(update []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(head, value []byte) bool) {
		_, rest := cut(update, 0, 2) // the withdrawn routes are in front
		rest, _ = cut(rest, 0, 2)
		for len(rest) > 2 {
			head, size := rest[:2], 1
			if head[0]&byte(wire.BGP_ATTR_FLAG_EXTENDED_LENGTH) != 0 {
				size = 2
			}
			var value []byte
			if value, rest = cut(rest, 2, size); !yield(head, value) {
				return
			}
		}
	}
}

// cut takes a field off the front of b: a head, a length of size 1 or 2 bytes, and so many bytes. If there are not so many, nothing is left.
func cut(b []byte, head, size int) (field, rest []byte) {
	begin := head + size
	if len(b) < begin {
		return nil, nil
	}
	length := int(b[head])
	if size == 2 {
		length = int(binary.BigEndian.Uint16(b[head:]))
	}
	if len(b) < begin+length {
		return nil, nil
	}
	return b[begin : begin+length], b[begin+length:]
}
