package route

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtaNexthopID is the attribute of a route whose next hop is an object (include/uapi/linux/rtnetlink.h).
const rtaNexthopID = 30

// state is what plait has in the kernel: everything with its protocol number.
type state struct {
	nexthops  map[way]uint32 // identifiers
	routes    routes
	rules     map[kernelRule]bool
	addresses map[kernelAddress]bool
}

// routes are many, but of few kinds.
type routes struct {
	list   []placed      // sorted by place, once all are read
	kinds  []kernelRoute // their place is empty
	number map[kernelRoute]uint32
}

// placed is a route: its place and the number of its kind.
type placed struct {
	place
	kind uint32
}

func (r *routes) add(one kernelRoute) {
	at := one.place
	one.place = place{}
	n, known := r.number[one]
	if !known {
		n = uint32(len(r.kinds))
		r.kinds, r.number[one] = append(r.kinds, one), n
	}
	r.list = append(r.list, placed{at, n})
}

// find returns the route of a place; nil: there is none.
func (r *routes) find(at place) *placed {
	i, there := slices.BinarySearchFunc(r.list, at, func(p placed, at place) int { return p.compare(at) })
	if !there {
		return nil
	}
	return &r.list[i]
}

func (r *routes) whole(p *placed) kernelRoute {
	one := r.kinds[p.kind]
	one.place = p.place
	return one
}

var families = []byte{unix.AF_INET6, unix.AF_INET}

// read finds what is plait's, whoever made it.
func (k *Kernel) read() (state, error) {
	s, err := k.readEnds()
	if err == nil {
		s.routes, err = k.readRoutes(s.nexthops)
	}
	return s, err
}

// readEnds finds all but the routes, which are many.
func (k *Kernel) readEnds() (s state, err error) {
	if s.rules, err = list(k.route, make(body, 12).request(unix.RTM_GETRULE, 0), readRule); err != nil {
		return s, fmt.Errorf("list routing rules: %w", err)
	}
	if s.addresses, err = list(k.route, make(body, 8).request(unix.RTM_GETADDR, 0), readAddress); err != nil {
		return s, fmt.Errorf("list addresses: %w", err)
	}
	k.others = map[uint32]bool{}
	if s.nexthops, err = list(k.route, make(body, 8).request(unix.RTM_GETNEXTHOP, 0), func(b []byte) (way, uint32, bool) {
		w, id, ours := readNexthop(b)
		if !ours && id >= firstNexthop {
			k.others[id] = true
		}
		return w, id, ours
	}); err != nil {
		return s, fmt.Errorf("list next hops: %w", err)
	}
	return s, nil
}

// readNexthop reads a struct nhmsg with its attributes.
func readNexthop(b []byte) (w way, id uint32, ours bool) {
	if len(b) < 8 {
		return w, 0, false
	}
	w.family = b[0]
	ok := attributes(b[8:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.NHA_ID:
			id = ad.Uint32()
		case unix.NHA_OIF:
			w.link = ad.Uint32()
		case unix.NHA_ENCAP:
			w.sid = readSID(ad)
		}
	})
	return w, id, ok && b[2] == Protocol && w.sid.IsValid()
}

// readRoutes lists plait's routes in all tables. The kernel leaves out the others': a million routes of a BGP daemon cost nothing here.
func (k *Kernel) readRoutes(nexthops map[way]uint32) (routes, error) {
	byID := map[uint32]way{}
	for w, id := range nexthops {
		byID[id] = w
	}
	all := routes{make([]placed, 0, k.many+k.many/8), nil, map[kernelRoute]uint32{}} // grown by append, it would take its room twice
	for _, f := range families {
		before := len(all.list)
		err := k.route.each(body{f, 0, 0, 0, 0, Protocol, 0, 0, 0, 0, 0, 0}.request(unix.RTM_GETROUTE, 0), func() { all.list = all.list[:before] }, func(b []byte) {
			r, protocol, ok := readRoute(b)
			if !ok || protocol != Protocol {
				return
			}
			w, known := byID[r.nexthop]
			r.sid, r.odd = w.sid, r.odd || known != (r.nexthop != 0)
			if known && r.open {
				r.link, r.open = w.link, false
			}
			all.add(r)
		})
		if err != nil {
			return all, fmt.Errorf("list plait's routes: %w", err)
		}
	}
	slices.SortFunc(all.list, func(a, b placed) int { return a.compare(b.place) })
	k.many = len(all.list)
	return all, nil
}

// foreign finds the routes of others in a table: one of each protocol.
func (k *Kernel) foreign(table uint32) (map[byte]kernelRoute, error) {
	all := map[byte]kernelRoute{}
	for _, f := range families {
		one, err := list(k.route, body{f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}.number(unix.RTA_TABLE, table).request(unix.RTM_GETROUTE, 0),
			func(b []byte) (byte, kernelRoute, bool) {
				if len(b) >= unix.SizeofRtMsg && b[5] == Protocol { // most are, and need not be read again
					return 0, kernelRoute{}, false
				}
				r, protocol, ok := readRoute(b)
				return protocol, r, ok && r.table == table
			})
		if err != nil {
			return nil, fmt.Errorf("list routes of table %d: %w", table, err)
		}
		maps.Copy(all, one)
	}
	return all, nil
}

// readRoute reads a struct rtmsg with its attributes.
func readRoute(b []byte) (r kernelRoute, protocol byte, ok bool) {
	if len(b) < unix.SizeofRtMsg {
		return r, 0, false
	}
	to := netip.IPv6Unspecified()
	if b[0] == unix.AF_INET {
		to = netip.IPv4Unspecified()
	} else if b[0] != unix.AF_INET6 {
		return r, 0, false
	}
	table, metric := uint32(b[4]), uint32(0)
	protocol = b[5]
	r.odd = b[2] != 0 || b[3] != 0 || b[7] != unix.RTN_UNICAST // a source prefix, a type of service, another type
	encapsulates := false
	ok = attributes(b[unix.SizeofRtMsg:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.RTA_DST:
			to = address(ad)
		case unix.RTA_TABLE:
			table = ad.Uint32()
		case unix.RTA_PRIORITY:
			metric = ad.Uint32()
		case unix.RTA_OIF:
			r.link = ad.Uint32()
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			r.gateway = gatewayOf(ad, r.gateway)
		case rtaNexthopID:
			r.nexthop = ad.Uint32()
		case unix.RTA_ENCAP:
			encapsulates = true
		case unix.RTA_MULTIPATH:
			r.odd, r.open = true, true
			r.gateway, r.link = firstHop(ad.Bytes())
		case unix.RTA_METRICS, unix.RTA_PREFSRC:
			r.odd = true
		}
	})
	r.odd = r.odd || encapsulates && r.nexthop == 0  // the kernel tells of the object's encapsulation too
	r.open = r.open || r.nexthop != 0 && r.link == 0 // with net.ipv4.nexthop_compat_mode=0 it tells nothing of the object
	prefix := netip.PrefixFrom(to, int(b[1]))
	r.place = placeOf(table, prefix, metric)
	return r, protocol, ok && prefix.IsValid()
}

// readSID returns the segment of an encapsulation with one, in mode encap.
func readSID(encapsulation *netlink.AttributeDecoder) (sid netip.Addr) {
	encapsulation.Nested(func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			value := ad.Bytes()
			if ad.Type() == nl.SEG6_IPTUNNEL_SRH && len(value) == 4+8+16 && native.Uint32(value) == nl.SEG6_IPTUN_MODE_ENCAP {
				sid, _ = netip.AddrFromSlice(value[12:])
			}
		}
		return nil
	})
	return sid
}

// readRule reads a struct fib_rule_hdr with its attributes. A rule with plait's number that is not for one source address is not plait's.
func readRule(b []byte) (r kernelRule, present, ours bool) {
	if len(b) < 12 {
		return r, false, false
	}
	r.table, r.unreachable = uint32(b[4]), b[7] == unix.FR_ACT_UNREACHABLE
	protocol := byte(0)
	odd := b[1] != 0 || b[3] != 0 || native.Uint32(b[8:])&unix.FIB_RULE_INVERT != 0 || !r.unreachable && b[7] != unix.FR_ACT_TO_TBL
	ok := attributes(b[12:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.FRA_SRC:
			r.source = address(ad)
		case unix.FRA_TABLE:
			r.table = ad.Uint32()
		case unix.FRA_PRIORITY:
			r.priority = ad.Uint32()
		case unix.FRA_PROTOCOL:
			protocol = ad.Uint8()
		case unix.FRA_FWMARK, unix.FRA_IIFNAME, unix.FRA_OIFNAME, unix.FRA_GOTO, unix.FRA_UID_RANGE, unix.FRA_IP_PROTO, unix.FRA_SPORT_RANGE, unix.FRA_DPORT_RANGE:
			odd = true
		}
	})
	if r.unreachable {
		r.table = 0
	}
	return r, true, ok && !odd && protocol == Protocol && r.source.IsValid() && int(b[2]) == r.source.BitLen()
}

// readAddress reads a struct ifaddrmsg with its attributes.
func readAddress(b []byte) (a kernelAddress, present, ours bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return a, false, false
	}
	a.link = native.Uint32(b[4:])
	protocol := byte(0)
	ok := attributes(b[unix.SizeofIfAddrmsg:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			a.address = address(ad)
		case unix.IFA_ADDRESS:
			if !a.address.IsValid() {
				a.address = address(ad)
			}
		case ifaProto:
			protocol = ad.Uint8()
		}
	})
	return a, true, ok && protocol == Protocol && a.address.IsValid() && int(b[1]) == a.address.BitLen()
}

// findLink returns the number of an interface that is there and up.
func (k *Kernel) findLink(name string) (uint32, error) {
	b, err := k.getLink(name)
	if err != nil {
		return 0, fmt.Errorf("find interface %s: %w; ip link shows which there are", name, err)
	}
	if native.Uint32(b[8:])&unix.IFF_UP == 0 {
		return 0, fmt.Errorf("use interface %s: it is down, and the kernel takes no routes for it; set it up with: ip link set %s up", name, name)
	}
	return native.Uint32(b[4:]), nil
}

// getLink returns the kernel's message about an interface: a struct ifinfomsg and attributes.
func (k *Kernel) getLink(name string) ([]byte, error) {
	b, err := k.route.get(make(body, unix.SizeofIfInfomsg).attribute(unix.IFLA_IFNAME, append([]byte(name), 0)...).request(unix.RTM_GETLINK, 0))
	if err == nil && len(b) < unix.SizeofIfInfomsg {
		err = errors.New("the kernel's answer is cut short")
	}
	return b, err
}

// hop is the way to a next hop; without gateway there is none.
type hop struct {
	gateway netip.Addr
	link    uint32
}

// askHop asks the kernel for its route to the next hop of a BGP route, and whether that is plait's own.
func (k *Kernel) askHop(next netip.Addr) (r theirRoute, ours bool, err error) {
	b, err := k.lookup(next, unix.RTM_F_FIB_MATCH)
	one, protocol, ok := readRoute(b)
	if err == nil && one.open { // the one that a packet to it would take
		b, err = k.lookup(next, 0)
		one, _, ok = readRoute(b)
	}
	if err != nil {
		return r, false, fmt.Errorf("find the way to next hop %v: %w; a route or a network to it is missing", next, err)
	}
	r = theirRoute{one, ok && b[7] == unix.RTN_UNICAST}
	return r, r.forwards && protocol == Protocol, nil
}

// hopBy is the way to a next hop by a route.
func hopBy(r theirRoute, next netip.Addr) (h hop) {
	if r.forwards && r.link != 0 {
		h.gateway, h.link = cmp.Or(r.gateway, next), r.link
	}
	return h
}

// findHop finds the way to the next hop of a BGP route. Routes of plait's do not count: that would be a route to itself.
func (k *Kernel) findHop(next netip.Addr) (hop, error) {
	r, ours, err := k.askHop(next)
	if ours {
		own := r.kernelRoute
		if r, err = k.behind(next); err == nil && r.table == 0 {
			err = fmt.Errorf("find the way to next hop %v: only over plait's own %v; a route or a network to it is missing", next, own)
		}
	}
	h := hopBy(r, next)
	if err == nil && !h.gateway.IsValid() {
		err = fmt.Errorf("find the way to next hop %v: none that can be used (%v)", next, r.kernelRoute)
	}
	return h, err
}

// lookup returns the route packets to an address take, as the kernel's message: that of the table with the flag RTM_F_FIB_MATCH, else what comes of it for one packet.
func (k *Kernel) lookup(to netip.Addr, flags uint32) ([]byte, error) {
	b := native.AppendUint32([]byte{family(to), byte(to.BitLen()), 0, 0, 0, 0, 0, 0}, flags)
	return k.route.get(body(b).address(unix.RTA_DST, to).request(unix.RTM_GETROUTE, 0))
}

// isLocal says whether the address is one of this host.
func (k *Kernel) isLocal(a netip.Addr) bool {
	b, err := k.lookup(a, unix.RTM_F_FIB_MATCH)
	return err == nil && len(b) >= unix.SizeofRtMsg && b[7] == unix.RTN_LOCAL
}
