package route

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ifaProto is the attribute of an address that says who made it, since Linux 5.18 (include/uapi/linux/if_addr.h).
const ifaProto = 11

// object is a thing in the kernel that plait makes and takes away.
type object interface {
	fmt.Stringer
	// request makes it (RTM_NEW...) or takes it away, written into b, which is empty. The request to take away matches nothing of others.
	request(b body, verb Verb) netlink.Message
}

// flags of a request.
func flags(v Verb) netlink.HeaderFlags {
	switch v {
	case Add:
		return netlink.Create | netlink.Excl
	case Replace:
		return netlink.Create | netlink.Replace
	}
	return 0
}

// kind of a request.
func kind(v Verb, create uint16) uint16 {
	if v == Delete {
		return create + 1 // RTM_DELROUTE, RTM_DELRULE, RTM_DELADDR
	}
	return create
}

// place is what the kernel tells routes apart by, without pointers: there are a million.
type place struct {
	addr          [16]byte
	table, metric uint32
	bits          uint8
	v4            bool
}

func placeOf(table uint32, prefix netip.Prefix, metric uint32) place {
	return place{prefix.Addr().As16(), table, metric, uint8(prefix.Bits()), prefix.Addr().Is4()}
}

// compare orders places by table, then prefix, then metric.
func (p place) compare(q place) int {
	switch {
	case p.table != q.table:
		return cmp.Compare(p.table, q.table)
	case p.v4 != q.v4 && p.v4:
		return -1
	case p.v4 != q.v4:
		return 1
	}
	return cmp.Or(bytes.Compare(p.addr[:], q.addr[:]), cmp.Compare(p.bits, q.bits), cmp.Compare(p.metric, q.metric))
}

func (p place) prefix() netip.Prefix {
	a := netip.AddrFrom16(p.addr)
	if p.v4 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, int(p.bits))
}

// way is what the routes to one SID have in common.
type way struct {
	family byte
	sid    netip.Addr
	link   uint32
}

// kernelNexthop is the object of a way, which all routes that take it share. A route with an encapsulation of its own costs memory on every CPU, and
// Linux 6.18 refuses the IPv6 ones after some 20,000 to 30,000 in a row, because it allocates that memory without waiting.
type kernelNexthop struct {
	way
	id uint32
}

// firstNexthop is where the identifiers of plait's begin: out of the way of those the kernel hands out, and those people type.
const firstNexthop = Protocol << 24

func (h kernelNexthop) String() string {
	return fmt.Sprintf("nexthop id %d encap seg6 mode encap segs %v link %d family %s", h.id, h.sid, h.link, map[byte]string{unix.AF_INET: "inet", unix.AF_INET6: "inet6"}[h.family])
}

func (h kernelNexthop) request(b body, verb Verb) netlink.Message {
	if verb == Delete {
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0).number(unix.NHA_ID, h.id).request(unix.RTM_DELNEXTHOP, 0)
	}
	sid := h.sid.As16()
	// Nested: struct seg6_iptunnel_encap, its mode and an SRH with one segment (RFC 8754 section 2).
	srh := native.AppendUint32(nil, nl.SEG6_IPTUN_MODE_ENCAP)
	srh = append(srh, 0, 2, nl.IPV6_SRCRT_TYPE_4, 0, 0, 0, 0, 0)
	nested := body{}.attribute(nl.SEG6_IPTUNNEL_SRH, append(srh, sid[:]...)...)
	return append(b, h.family, 0, Protocol, 0, 0, 0, 0, 0).number(unix.NHA_ID, h.id).number(unix.NHA_OIF, h.link).
		attribute(unix.NHA_ENCAP_TYPE, native.AppendUint16(nil, unix.LWTUNNEL_ENCAP_SEG6)...).attribute(netlink.Nested|unix.NHA_ENCAP, nested...).
		request(unix.RTM_NEWNEXTHOP, flags(verb))
}

// kernelRoute is a route with plait's protocol number.
type kernelRoute struct {
	place
	nexthop uint32     // its object, if it encapsulates
	sid     netip.Addr // to which
	gateway netip.Addr // if it does not
	link    uint32
	odd     bool // it has something no route of plait's has
	open    bool // it has several gateways, or an object that is not told of: which one a packet takes, the kernel has to be asked
}

func (r kernelRoute) String() string {
	s := "route " + r.prefix().String()
	if r.nexthop != 0 {
		s += fmt.Sprint(" nhid ", r.nexthop)
	}
	if r.sid.IsValid() {
		s += " encap seg6 mode encap segs " + r.sid.String()
	}
	if r.gateway.IsValid() {
		s += " via " + r.gateway.String()
	}
	if r.link != 0 {
		s += fmt.Sprint(" link ", r.link)
	}
	return fmt.Sprintf("%s table %d metric %d", s, r.table, r.metric)
}

func (r kernelRoute) request(b body, verb Verb) netlink.Message {
	a := r.prefix().Addr()
	scope, kindOf := byte(unix.RT_SCOPE_UNIVERSE), byte(unix.RTN_UNICAST)
	if verb == Delete {
		scope, kindOf = unix.RT_SCOPE_NOWHERE, 0 // any
	}
	b = body(native.AppendUint32(append(b, family(a), r.bits, 0, 0, unix.RT_TABLE_UNSPEC, Protocol, scope, kindOf), r.flags(verb))).
		address(unix.RTA_DST, a).number(unix.RTA_TABLE, r.table).number(unix.RTA_PRIORITY, r.metric)
	switch {
	case verb == Delete:
	case r.nexthop != 0:
		b = b.number(rtaNexthopID, r.nexthop)
	case r.gateway.Is4() == a.Is4():
		b = b.number(unix.RTA_OIF, r.link).address(unix.RTA_GATEWAY, r.gateway)
	default: // an IPv4 prefix with an IPv6 next hop (RFC 8950)
		via := native.AppendUint16(nil, uint16(family(r.gateway)))
		b = b.number(unix.RTA_OIF, r.link).attribute(unix.RTA_VIA, append(via, r.gateway.AsSlice()...)...)
	}
	return b.request(kind(verb, unix.RTM_NEWROUTE), flags(verb))
}

// flags say of a gateway that it is on the link: the kernel takes none that it would send over a gateway itself, as one with a best path of its own, or one on no network of the interface.
func (r kernelRoute) flags(verb Verb) uint32 {
	if verb != Delete && r.gateway.IsValid() {
		return unix.RTNH_F_ONLINK
	}
	return 0
}

// kernelRule is a routing rule for packets of one source address.
type kernelRule struct {
	source      netip.Addr
	table       uint32 // 0: the rule says unreachable
	unreachable bool
	priority    uint32
}

func (r kernelRule) String() string {
	if r.unreachable {
		return fmt.Sprintf("rule %d: from %v unreachable", r.priority, r.source)
	}
	return fmt.Sprintf("rule %d: from %v lookup %d", r.priority, r.source, r.table)
}

func (r kernelRule) request(b body, verb Verb) netlink.Message {
	action := byte(unix.FR_ACT_TO_TBL)
	if r.unreachable {
		action = unix.FR_ACT_UNREACHABLE
	}
	b = append(b, family(r.source), 0, byte(r.source.BitLen()), 0, 0, 0, 0, action, 0, 0, 0, 0).
		address(unix.FRA_SRC, r.source).number(unix.FRA_PRIORITY, r.priority).attribute(unix.FRA_PROTOCOL, Protocol)
	if !r.unreachable {
		b = b.number(unix.FRA_TABLE, r.table)
	}
	return b.request(kind(verb, unix.RTM_NEWRULE), flags(verb))
}

// kernelAddress is an address of an interface.
type kernelAddress struct {
	address netip.Addr
	link    uint32
}

func (a kernelAddress) String() string { return fmt.Sprintf("address %v link %d", a.address, a.link) }

// An EPE address is deprecated, so that no socket takes it as source that did not ask for it. It is usable at once (no duplicate address detection)
// and puts no route for itself into the main table.
const addressFlags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE

func (a kernelAddress) request(b body, verb Verb) netlink.Message {
	b = body(native.AppendUint32(append(b, family(a.address), byte(a.address.BitLen()), 0, unix.RT_SCOPE_UNIVERSE), a.link)).
		address(unix.IFA_LOCAL, a.address).address(unix.IFA_ADDRESS, a.address)
	if verb != Delete {
		lifetimes := make([]byte, 16) // struct ifa_cacheinfo: preferred, valid, created, updated; seconds
		native.PutUint32(lifetimes[4:], ^uint32(0))
		b = b.number(unix.IFA_FLAGS, addressFlags).attribute(ifaProto, Protocol).attribute(unix.IFA_CACHEINFO, lifetimes...)
	}
	return b.request(kind(verb, unix.RTM_NEWADDR), flags(verb))
}
