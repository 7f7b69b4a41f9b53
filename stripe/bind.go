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
	route, err := s.route(to.Addr(), "")
	if err == nil && route.Type == unix.RTN_LOCAL {
		return nil // the peer is this host
	}
	var refused error
	if err := c.Control(func(fd uintptr) { refused = syscall.BindToDevice(int(fd), s.link) }); err != nil {
		return err
	}
	if refused == nil {
		_, err := s.route(to.Addr(), s.link)
		return err
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

// route asks the kernel how it would send, through a link if one is named. Without a route TCP would look for the peer on the
// link itself, for seconds.
func (s source) route(to netip.Addr, link string) (netlink.Route, error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{SrcAddr: s.addr.AsSlice(), Oif: link})
	if err == nil && len(routes) == 0 {
		err = errors.New("none")
	}
	if err != nil {
		return netlink.Route{}, fmt.Errorf("no route to %v from %v through %s: %w", to, s.addr, s.link, err)
	}
	return routes[0], nil
}
