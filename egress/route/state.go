package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtaNexthopID is the attribute of a route whose next hop is an object (include/uapi/linux/rtnetlink.h).
const rtaNexthopID = 30

// state is what plait has in the kernel: everything with its protocol number.
type state struct {
	nexthops  map[way]uint32 // identifiers
	routes    map[place]kernelRoute
	rules     map[kernelRule]bool
	addresses map[kernelAddress]bool
}

var families = []byte{unix.AF_INET6, unix.AF_INET}

// read finds what is plait's, whoever made it.
func (k *Kernel) read() (state, error) {
	s := state{rules: map[kernelRule]bool{}, addresses: map[kernelAddress]bool{}}
	err := k.route.dump(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETRULE, 0, seq, make([]byte, 12)...)
		m.end()
	}, func() { clear(s.rules) }, func(payload []byte) {
		if r, ours := readRule(payload); ours {
			s.rules[r] = true
		}
	})
	if err != nil {
		return s, fmt.Errorf("list routing rules: %w", err)
	}
	err = k.route.dump(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETADDR, 0, seq, make([]byte, 8)...)
		m.end()
	}, func() { clear(s.addresses) }, func(payload []byte) {
		if a, ours := readAddress(payload); ours {
			s.addresses[a] = true
		}
	})
	if err != nil {
		return s, fmt.Errorf("list addresses: %w", err)
	}
	if s.nexthops, err = k.readNexthops(); err == nil {
		s.routes, err = k.readRoutes(s.nexthops)
	}
	return s, err
}

func (k *Kernel) readNexthops() (map[way]uint32, error) {
	all := map[way]uint32{}
	err := k.route.dump(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETNEXTHOP, 0, seq, make([]byte, 8)...)
		m.end()
	}, func() { clear(all) }, func(payload []byte) {
		if h, ours := readNexthop(payload); ours {
			all[h.way] = h.id
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list next hops: %w", err)
	}
	return all, nil
}

// readNexthop reads a struct nhmsg with its attributes.
func readNexthop(b []byte) (h kernelNexthop, ours bool) {
	if len(b) < 8 {
		return h, false
	}
	h.family = b[0]
	ok := attributes(b[8:], func(kind uint16, value []byte) {
		switch kind {
		case unix.NHA_ID:
			h.id = number(value)
		case unix.NHA_OIF:
			h.link = number(value)
		case unix.NHA_ENCAP:
			h.sid = readSID(value)
		}
	})
	return h, ok && b[2] == Protocol && h.sid.IsValid()
}

// readRoutes lists plait's routes in all tables. The kernel leaves out the others': a million routes of a BGP daemon cost nothing here.
func (k *Kernel) readRoutes(nexthops map[way]uint32) (map[place]kernelRoute, error) {
	byID := map[uint32]way{}
	for w, id := range nexthops {
		byID[id] = w
	}
	all := map[place]kernelRoute{}
	for _, f := range families {
		one := map[place]kernelRoute{}
		err := k.route.dump(func(m *message, seq uint32) {
			m.begin(unix.RTM_GETROUTE, 0, seq, f, 0, 0, 0, 0, Protocol, 0, 0, 0, 0, 0, 0)
			m.end()
		}, func() { clear(one) }, func(payload []byte) {
			if r, protocol, ok := readRoute(payload); ok && protocol == Protocol {
				w, known := byID[r.nexthop]
				r.sid, r.odd = w.sid, r.odd || known != (r.nexthop != 0)
				one[r.place] = r
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list plait's routes: %w", err)
		}
		for at, r := range one {
			all[at] = r
		}
	}
	return all, nil
}

// foreign counts the routes of others in a table and returns one of them.
func (k *Kernel) foreign(table uint32) (n int, example kernelRoute, protocol byte, err error) {
	for _, f := range families {
		err = k.route.dump(func(m *message, seq uint32) {
			m.begin(unix.RTM_GETROUTE, 0, seq, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			m.uint32(unix.RTA_TABLE, table)
			m.end()
		}, func() {}, func(payload []byte) {
			if r, p, ok := readRoute(payload); ok && p != Protocol && r.table == table {
				n, example, protocol = n+1, r, p
			}
		})
		if err != nil {
			return n, example, protocol, fmt.Errorf("list routes of table %d: %w", table, err)
		}
	}
	return n, example, protocol, nil
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
	r.table, protocol = uint32(b[4]), b[5]
	r.odd = b[2] != 0 || b[3] != 0 || b[7] != unix.RTN_UNICAST // a source prefix, a type of service, another type
	encapsulates := false
	ok = attributes(b[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			to = address(value)
		case unix.RTA_TABLE:
			r.table = number(value)
		case unix.RTA_PRIORITY:
			r.metric = number(value)
		case unix.RTA_OIF:
			r.link = number(value)
		case unix.RTA_GATEWAY:
			r.gateway = address(value)
		case unix.RTA_VIA:
			r.gateway = address(value[min(2, len(value)):])
		case rtaNexthopID:
			r.nexthop = number(value)
		case unix.RTA_ENCAP:
			encapsulates = true
		case unix.RTA_MULTIPATH, unix.RTA_METRICS, unix.RTA_PREFSRC:
			r.odd = true
		}
	})
	r.odd = r.odd || encapsulates && r.nexthop == 0 // the kernel tells of the object's encapsulation too
	r.prefix = netip.PrefixFrom(to, int(b[1]))
	return r, protocol, ok && r.prefix.IsValid()
}

// readSID returns the segment of an encapsulation with one, in mode encap.
func readSID(encapsulation []byte) (sid netip.Addr) {
	attributes(encapsulation, func(kind uint16, value []byte) {
		if kind != nl.SEG6_IPTUNNEL_SRH || len(value) != 4+8+16 || native.Uint32(value) != nl.SEG6_IPTUN_MODE_ENCAP {
			return
		}
		sid = address(value[12:])
	})
	return sid
}

// readRule reads a struct fib_rule_hdr with its attributes. A rule with plait's number that is not for one source address is not plait's.
func readRule(b []byte) (r kernelRule, ours bool) {
	if len(b) < 12 {
		return r, false
	}
	r.table, r.unreachable = uint32(b[4]), b[7] == unix.FR_ACT_UNREACHABLE
	protocol := uint32(0)
	odd := b[1] != 0 || b[3] != 0 || native.Uint32(b[8:])&unix.FIB_RULE_INVERT != 0 || !r.unreachable && b[7] != unix.FR_ACT_TO_TBL
	ok := attributes(b[12:], func(kind uint16, value []byte) {
		switch kind {
		case unix.FRA_SRC:
			r.source = address(value)
		case unix.FRA_TABLE:
			r.table = number(value)
		case unix.FRA_PRIORITY:
			r.priority = number(value)
		case unix.FRA_PROTOCOL:
			protocol = number(value)
		case unix.FRA_FWMARK, unix.FRA_IIFNAME, unix.FRA_OIFNAME, unix.FRA_GOTO, unix.FRA_UID_RANGE, unix.FRA_IP_PROTO, unix.FRA_SPORT_RANGE, unix.FRA_DPORT_RANGE:
			odd = true
		}
	})
	if r.unreachable {
		r.table = 0
	}
	return r, ok && !odd && protocol == Protocol && r.source.IsValid() && int(b[2]) == r.source.BitLen()
}

// readAddress reads a struct ifaddrmsg with its attributes.
func readAddress(b []byte) (a kernelAddress, ours bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return a, false
	}
	a.link = native.Uint32(b[4:])
	protocol := uint32(0)
	ok := attributes(b[unix.SizeofIfAddrmsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			a.address = address(value)
		case unix.IFA_ADDRESS:
			if !a.address.IsValid() {
				a.address = address(value)
			}
		case ifaProto:
			protocol = number(value)
		}
	})
	return a, ok && protocol == Protocol && a.address.IsValid() && int(b[1]) == a.address.BitLen()
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
	b, err := k.route.get(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETLINK, 0, seq, make([]byte, unix.SizeofIfInfomsg)...)
		m.attribute(unix.IFLA_IFNAME, append([]byte(name), 0)...)
		m.end()
	})
	if err == nil && len(b) < unix.SizeofIfInfomsg {
		err = errors.New("the kernel's answer is cut short")
	}
	return b, err
}

// hop is the way to a next hop.
type hop struct {
	gateway netip.Addr
	link    uint32
}

// findHop asks the kernel for the way to the next hop of a BGP route. It must not lead over a route of plait's: that would be a route to itself.
func (k *Kernel) findHop(next netip.Addr) (hop, error) {
	b, err := k.lookup(next)
	if err != nil {
		return hop{}, fmt.Errorf("find the way to next hop %v: %w; a route or a network to it is missing", next, err)
	}
	r, protocol, ok := readRoute(b)
	switch {
	case !ok || b[7] != unix.RTN_UNICAST || r.link == 0:
		return hop{}, fmt.Errorf("find the way to next hop %v: none that can be used (%v)", next, r)
	case protocol == Protocol:
		return hop{}, fmt.Errorf("find the way to next hop %v: only over plait's own %v; a route or a network to it is missing", next, r)
	case r.gateway.IsValid():
		return hop{r.gateway, r.link}, nil
	}
	return hop{next, r.link}, nil
}

// lookup returns the route packets to an address take, as the kernel's message.
func (k *Kernel) lookup(to netip.Addr) ([]byte, error) {
	return k.route.get(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETROUTE, 0, seq, family(to), byte(to.BitLen()), 0, 0, 0, 0, 0, 0)
		m.b = native.AppendUint32(m.b, unix.RTM_F_FIB_MATCH)
		m.address(unix.RTA_DST, to)
		m.end()
	})
}

// isLocal says whether the address is one of this host.
func (k *Kernel) isLocal(a netip.Addr) bool {
	b, err := k.lookup(a)
	return err == nil && len(b) >= unix.SizeofRtMsg && b[7] == unix.RTN_LOCAL
}
