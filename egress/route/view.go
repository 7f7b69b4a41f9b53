package route

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// View looks at the routing state of the network namespace in which it was opened, as the kernel has it. It changes nothing. It is for one goroutine at a time.
type View struct {
	kernel Kernel
}

// OpenView fails on a kernel without SRv6.
func OpenView() (*View, error) {
	v := &View{}
	var err error
	if v.kernel.tunsrc, err = openTunsrc(); err != nil {
		return nil, err
	}
	if v.kernel.route, err = openSocket(unix.NETLINK_ROUTE); err != nil {
		v.kernel.tunsrc.close()
		return nil, err
	}
	return v, nil
}

// Close ends the view.
func (v *View) Close() { v.kernel.Close() }

// TunnelSource is the address encapsulated packets come from; :: is whatever suits the route.
func (v *View) TunnelSource() (netip.Addr, error) { return v.kernel.tunsrc.current() }

// Missing lists what packets from an exit's addresses need and the kernel has not, as ip(8) would write it: rules, and the addresses themselves, whoever made them.
func (v *View) Missing(table uint32, addresses []netip.Addr) ([]string, error) {
	rules := map[kernelRule]bool{}
	err := v.kernel.route.dump(func(m *message, seq uint32) {
		m.begin(unix.RTM_GETRULE, 0, seq, make([]byte, 12)...)
		m.end()
	}, func() { clear(rules) }, func(payload []byte) {
		if r, ours := readRule(payload); ours {
			rules[r] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	var missing []string
	for _, a := range addresses {
		for _, r := range []kernelRule{{source: a, priority: LookupPriority, table: table}, {source: a, priority: UnreachablePriority, unreachable: true}} {
			if !rules[r] {
				missing = append(missing, r.String())
			}
		}
		if !v.kernel.isLocal(a) {
			missing = append(missing, fmt.Sprint("address ", a))
		}
	}
	return missing, nil
}

// Count is the number of plait's routes in a table.
func (v *View) Count(table uint32) (int, error) {
	sum := 0
	for _, f := range families {
		n := 0
		err := v.kernel.route.dump(func(m *message, seq uint32) {
			m.begin(unix.RTM_GETROUTE, 0, seq, f, 0, 0, 0, 0, Protocol, 0, 0, 0, 0, 0, 0)
			m.uint32(unix.RTA_TABLE, table)
			m.end()
		}, func() { n = 0 }, func(payload []byte) {
			if r, protocol, ok := readRoute(payload); ok && protocol == Protocol && r.table == table {
				n++
			}
		})
		if err != nil {
			return 0, fmt.Errorf("count the routes of table %d: %w", table, err)
		}
		sum += n
	}
	return sum, nil
}

// Way is the route the kernel takes for a packet.
type Way struct {
	Table     uint32
	Prefix    netip.Prefix
	SID       netip.Addr // it is encapsulated to; not valid: it is not
	Gateway   netip.Addr // not valid: none
	Interface string
}

func (w Way) String() string {
	s := w.Prefix.String()
	if w.SID.IsValid() {
		s += " to SID " + w.SID.String()
	}
	if w.Gateway.IsValid() {
		s += " via " + w.Gateway.String()
	}
	return fmt.Sprintf("%s dev %s table %d", s, w.Interface, w.Table)
}

// Find asks the kernel for the way of a packet; from may be invalid, for a packet that has no source yet.
func (v *View) Find(from, to netip.Addr) (Way, error) {
	b, err := v.kernel.route.get(func(m *message, seq uint32) {
		source := 0
		if from.IsValid() {
			source = from.BitLen()
		}
		m.begin(unix.RTM_GETROUTE, 0, seq, family(to), byte(to.BitLen()), byte(source), 0, 0, 0, 0, 0)
		wanted := uint32(unix.RTM_F_FIB_MATCH)
		if to.Is4() {
			wanted |= unix.RTM_F_LOOKUP_TABLE // IPv6 tells the table anyway, and refuses to be asked
		}
		m.b = native.AppendUint32(m.b, wanted)
		m.address(unix.RTA_DST, to)
		if from.IsValid() {
			m.address(unix.RTA_SRC, from)
		}
		m.end()
	})
	if err != nil {
		return Way{}, fmt.Errorf("find the way to %v: %w", to, err)
	}
	r, _, ok := readRoute(b)
	if !ok || b[7] != unix.RTN_UNICAST {
		return Way{}, fmt.Errorf("find the way to %v: no route that forwards (%v)", to, r)
	}
	if r.nexthop != 0 {
		nexthops, err := v.kernel.readNexthops()
		if err != nil {
			return Way{}, err
		}
		for way, id := range nexthops {
			if id == r.nexthop {
				r.sid, r.link = way.sid, way.link
			}
		}
	}
	link, err := net.InterfaceByIndex(int(r.link))
	if err != nil {
		return Way{}, fmt.Errorf("find the way to %v: interface %d: %w", to, r.link, err)
	}
	return Way{Table: r.table, Prefix: r.prefix, SID: r.sid, Gateway: r.gateway, Interface: link.Name}, nil
}
