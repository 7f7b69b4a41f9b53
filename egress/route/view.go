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
	if v.kernel.route, err = dial(); err != nil {
		v.kernel.tunsrc.Close()
		return nil, err
	}
	return v, nil
}

// Close ends the view.
func (v *View) Close() {
	v.kernel.route.Close()
	v.kernel.tunsrc.Close()
}

// TunnelSource is the address encapsulated packets come from; :: is whatever suits the route.
func (v *View) TunnelSource() (netip.Addr, error) { return v.kernel.tunsrc.current() }

// Missing lists what packets from an exit's addresses need and the kernel has not, as ip(8) would write it: rules, and the addresses themselves, whoever made them.
func (v *View) Missing(table uint32, addresses []netip.Addr) ([]string, error) {
	rules, err := list(v.kernel.route, make(body, 12).request(unix.RTM_GETRULE, 0), readRule)
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
		request := body{f, 0, 0, 0, 0, Protocol, 0, 0, 0, 0, 0, 0}.number(unix.RTA_TABLE, table).request(unix.RTM_GETROUTE, 0)
		routes, err := list(v.kernel.route, request, func(b []byte) (place, bool, bool) {
			r, protocol, ok := readRoute(b)
			return r.place, true, ok && protocol == Protocol && r.table == table
		})
		if err != nil {
			return 0, fmt.Errorf("count the routes of table %d: %w", table, err)
		}
		sum += len(routes)
	}
	return sum, nil
}

// Others is a route of somebody else in a table, as ip(8) would write it; empty: there is none.
func (v *View) Others(table uint32) (string, error) {
	theirs, err := v.kernel.foreign(table)
	for protocol, example := range theirs {
		return fmt.Sprintf("%v of protocol %d", example, protocol), err
	}
	return "", err
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
	source, wanted := 0, uint32(unix.RTM_F_FIB_MATCH)
	if from.IsValid() {
		source = from.BitLen()
	}
	if to.Is4() {
		wanted |= unix.RTM_F_LOOKUP_TABLE // IPv6 tells the table anyway, and refuses to be asked
	}
	ask := func(flags uint32) ([]byte, error) {
		question := body(native.AppendUint32([]byte{family(to), byte(to.BitLen()), byte(source), 0, 0, 0, 0, 0}, flags)).address(unix.RTA_DST, to)
		if from.IsValid() {
			question = question.address(unix.RTA_SRC, from)
		}
		return v.kernel.route.get(question.request(unix.RTM_GETROUTE, 0))
	}
	b, err := ask(wanted)
	r, _, ok := readRoute(b)
	if err == nil && r.open {
		var one kernelRoute
		b, err = ask(0)
		one, _, ok = readRoute(b)
		r.gateway, r.link = one.gateway, one.link
	}
	if err != nil {
		return Way{}, fmt.Errorf("find the way to %v: %w", to, err)
	}
	if !ok || b[7] != unix.RTN_UNICAST {
		return Way{}, fmt.Errorf("find the way to %v: no route that forwards (%v)", to, r)
	}
	if r.nexthop != 0 {
		nexthops, err := list(v.kernel.route, make(body, 8).request(unix.RTM_GETNEXTHOP, 0), readNexthop)
		if err != nil {
			return Way{}, fmt.Errorf("list next hops: %w", err)
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
	return Way{Table: r.table, Prefix: r.prefix(), SID: r.sid, Gateway: r.gateway, Interface: link.Name}, nil
}
