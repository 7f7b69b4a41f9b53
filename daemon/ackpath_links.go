package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"plait.dev/plait/egress/mptcp"
)

// ackLink is where the packets of a subflow leave this host.
type ackLink struct {
	index int
	name  string
	// source is the subflow's own address, nextHop a router's or the peer itself; neither is IPv4-mapped.
	source, nextHop netip.Addr
}

// routeGet asks for the route to an address.
func routeGet(to netip.Addr, o netlink.RouteGetOptions) (netlink.Route, error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &o)
	if err == nil && (len(routes) != 1 || routes[0].Type != unix.RTN_UNICAST) {
		err = errors.New("no way out of this host")
	}
	if err != nil {
		return netlink.Route{}, err
	}
	return routes[0], nil
}

// linkOf is the link of a subflow, by name too.
func linkOf(f mptcp.Flow) (l ackLink, err error) {
	if l, err = routeOf(f); err != nil {
		return l, err
	}
	device, err := netlink.LinkByIndex(l.index)
	if err != nil {
		return l, fmt.Errorf("find the name of interface %d: %w", l.index, err)
	}
	l.name = device.Attrs().Name
	return l, nil
}

// routeOf asks the kernel's routing for the link of a subflow: with its source address, and the interface its socket is bound to, if it is. Where copies cannot follow the route, it
// is an error, and the index is there all the same.
func routeOf(f mptcp.Flow) (l ackLink, err error) {
	ends := f.Ends()
	l.source = ends.Local.Addr()
	to := ends.Remote.Addr()
	failed := func(err error) (ackLink, error) {
		return l, fmt.Errorf("find the link from %v to %v: %w", l.source, to, err)
	}
	bound := int(f.Interface)
	r, err := routeGet(to, netlink.RouteGetOptions{SrcAddr: l.source.AsSlice(), OifIndex: bound})
	if bound != 0 && (err != nil || r.LinkIndex != bound) { // of IPv6 the kernel keeps to the interface only without a source
		r, err = routeGet(to, netlink.RouteGetOptions{OifIndex: bound})
	}
	if err != nil {
		return failed(err)
	}
	l.index = r.LinkIndex
	if r.Encap != nil || r.Via != nil {
		return failed(errors.New("the route has an encapsulation, or a next hop of the other family, which copies do not follow"))
	}
	l.nextHop = to
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		l.nextHop = gateway.Unmap()
	}
	return l, nil
}

// openHello opens the socket that hellos over a link leave from, and copies seem to. It is bound to the link, which needs no right beyond the daemon's (Linux 5.7 or newer).
func openHello(l ackLink) (*net.UDPConn, error) {
	bind := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, l.name) }); e != nil {
			return e
		}
		return err
	}}
	c, err := bind.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(l.source, 0).String())
	if err != nil {
		return nil, fmt.Errorf("open a socket for hellos over %s: %w", l.name, err)
	}
	return c.(*net.UDPConn), nil
}
