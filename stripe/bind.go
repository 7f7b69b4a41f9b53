package stripe

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bind keeps a socket to its link: SO_BINDTODEVICE, which needs no rights since Linux 5.7 (kernel commit c427bfec18f2). Where that is
// refused, the source address must do, if the routes send what comes from it over the link.
func (s source) bind(_, address string, c syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	route, err := s.route(to.Addr(), netlink.RouteGetOptions{})
	if err == nil && route.Type == unix.RTN_LOCAL {
		return nil // the peer is this host
	}
	var refused error
	if err := c.Control(func(fd uintptr) { refused = syscall.BindToDevice(int(fd), s.link) }); err != nil {
		return err
	}
	if refused == nil {
		return s.leads(to.Addr())
	}
	if err != nil {
		return err
	}
	through, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return fmt.Errorf("bind to %s: %w", s.link, refused)
	}
	if name := through.Attrs().Name; name != s.link {
		return fmt.Errorf("packets from %v to %v leave through %s, not %s, and binding to %s is refused (%w); add a routing rule for that source address",
			s.addr, to.Addr(), name, s.link, s.link, refused)
	}
	return nil
}

// leads reports whether a route leads over the link. Without one the kernel takes a peer of IPv4 to be on the link itself (ip_route_output_key_hash_rcu in net/ipv4/route.c):
// TCP would look for it there, for seconds, in vain unless the link has one other end only.
func (s source) leads(to netip.Addr) error {
	if _, err := s.route(to, netlink.RouteGetOptions{Oif: s.link}); err != nil {
		return err
	}
	_, err := s.route(to, netlink.RouteGetOptions{Oif: s.link, FIBMatch: true})
	if err == nil {
		return nil
	}
	if l, bad := netlink.LinkByName(s.link); bad != nil || l.Attrs().RawFlags&(unix.IFF_POINTOPOINT|unix.IFF_NOARP) != 0 {
		return nil
	}
	return err
}

// route asks the kernel how it would send.
func (s source) route(to netip.Addr, how netlink.RouteGetOptions) (netlink.Route, error) {
	how.SrcAddr = s.addr.AsSlice()
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &how)
	if err == nil && len(routes) == 0 {
		err = errors.New("none")
	}
	if err != nil {
		return netlink.Route{}, fmt.Errorf("no route to %v from %v through %s: %w", to, s.addr, s.link, err)
	}
	return routes[0], nil
}
