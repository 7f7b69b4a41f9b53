package measure

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// firstEPETable is the lowest number of a content server's tables of one exit each.
const firstEPETable = 101

// routeBufferBytes holds some thousand changes that come at one instant.
const routeBufferBytes = 4 << 20

// routes follows the route changes of nodes.
type routes struct {
	cfg   Config
	nodes []*routeMonitor
}

// routeMonitor follows the routes of one node to one prefix.
type routeMonitor struct {
	node    string
	prefix  netip.Prefix
	origin  time.Time
	updates chan netlink.RouteUpdate
	done    chan struct{}
	ended   chan struct{}
	lost    error // read after ended

	devices map[int]string // names, by index
	tables  map[int][]hop  // the routes in every table that matters
	changes []routeChange
}

// hop is one route to the prefix: where packets go. Routes of one table are told apart by metric and next hop.
type hop struct {
	metric int
	via    string
}

func openRoutes(cfg Config) (*routes, error) {
	r := &routes{cfg: cfg}
	for _, node := range cfg.Measure.Routes {
		prefix := cfg.Prefix[node]
		if !prefix.IsValid() {
			r.close()
			return nil, fmt.Errorf("follow routes of %s: no prefix is given", node)
		}
		m, err := openRouteMonitor(node, prefix, cfg.Origin)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("follow routes of %s: %w", node, err)
		}
		r.nodes = append(r.nodes, m)
	}
	return r, nil
}

// openRouteMonitor listens for changes first and then lists the routes, so that none is missed; one that comes in
// between is seen twice, which changes nothing.
func openRouteMonitor(node string, prefix netip.Prefix, origin time.Time) (*routeMonitor, error) {
	m := &routeMonitor{node: node, prefix: prefix.Masked(), origin: origin, devices: map[int]string{}, tables: map[int][]hop{},
		updates: make(chan netlink.RouteUpdate, 64), done: make(chan struct{}), ended: make(chan struct{})}
	ns, err := vnetns.GetFromPath(filepath.Join(netns.Dir, node))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	devices, err := handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, d := range devices {
		m.devices[d.Attrs().Index] = d.Attrs().Name
	}
	err = netlink.RouteSubscribeWithOptions(m.updates, m.done, netlink.RouteSubscribeOptions{
		Namespace: &ns, ErrorCallback: m.failed, ReceiveBufferSize: routeBufferBytes, ReceiveBufferForceSize: true})
	if err != nil {
		return nil, err
	}
	family := netlink.FAMILY_V6
	if prefix.Addr().Is4() {
		family = netlink.FAMILY_V4
	}
	list, err := handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		close(m.done)
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, route := range list {
		m.apply(unix.RTM_NEWROUTE, unix.NLM_F_APPEND, &route)
	}
	go m.runRoutes()
	return m, nil
}

// failed is called by the subscription. Closing it makes a receive fail, too.
func (m *routeMonitor) failed(err error) {
	select {
	case <-m.done:
	default:
		m.lost = err
	}
}

// runRoutes records changes until the subscription ends.
func (m *routeMonitor) runRoutes() {
	defer close(m.ended)
	for update := range m.updates {
		if m.apply(update.Type, update.NlFlags, &update.Route) {
			hops := m.tables[update.Table]
			m.changes = append(m.changes, routeChange{time.Since(m.origin), update.Table, len(hops), describe(hops)})
		}
	}
}

// apply brings tables up to date and says whether the message changed them. Daemons write a route again that is
// already there; that is no change.
func (m *routeMonitor) apply(kind, flags uint16, route *netlink.Route) bool {
	if route.Table != unix.RT_TABLE_MAIN && (route.Table < firstEPETable || route.Table >= unix.RT_TABLE_COMPAT && route.Table <= unix.RT_TABLE_LOCAL) ||
		!m.matches(route) {
		return false
	}
	before := m.tables[route.Table]
	after := slices.Clone(before)
	for _, h := range m.hopsOf(route) {
		switch {
		case kind == unix.RTM_DELROUTE:
			after = slices.DeleteFunc(after, func(o hop) bool { return o == h })
		case route.Type != unix.RTN_UNICAST: // unreachable, blackhole: no route
		case !slices.Contains(after, h):
			after = append(after, h)
		}
	}
	if kind == unix.RTM_NEWROUTE && flags&unix.NLM_F_REPLACE != 0 { // everything with this metric
		keep := m.hopsOf(route)
		after = slices.DeleteFunc(after, func(o hop) bool {
			return o.metric == route.Priority && (route.Type != unix.RTN_UNICAST || !slices.Contains(keep, o))
		})
	}
	slices.SortFunc(after, func(a, b hop) int { return strings.Compare(a.via, b.via) })
	m.tables[route.Table] = after
	return !slices.Equal(before, after)
}

// matches says whether a route's destination is the prefix. A default route has no destination, or one of length 0.
func (m *routeMonitor) matches(route *netlink.Route) bool {
	if route.Dst == nil {
		return m.prefix.Bits() == 0 && (route.Family == unix.AF_INET) == m.prefix.Addr().Is4()
	}
	address, ok := netip.AddrFromSlice(route.Dst.IP)
	bits, _ := route.Dst.Mask.Size()
	return ok && netip.PrefixFrom(address, bits).Masked() == m.prefix
}

// hopsOf is the next hops of a route: several if it is a multipath route.
func (m *routeMonitor) hopsOf(route *netlink.Route) []hop {
	if len(route.MultiPath) == 0 {
		return []hop{{route.Priority, m.via(route.Gw, route.LinkIndex, route.Encap)}}
	}
	var hops []hop
	for _, n := range route.MultiPath {
		hops = append(hops, hop{route.Priority, m.via(n.Gw, n.LinkIndex, n.Encap)})
	}
	return hops
}

// via names a next hop as ip-route(8) does.
func (m *routeMonitor) via(gateway net.IP, device int, encap netlink.Encap) string {
	text := "dev " + m.devices[device]
	if gateway != nil {
		text = "via " + gateway.String() + " " + text
	}
	if encap != nil {
		text = "encap " + encap.String() + " " + text
	}
	return text
}

func (r *routes) finish(end time.Duration, out *Outcome) error {
	r.close()
	for _, m := range r.nodes {
		if m.lost != nil {
			return fmt.Errorf("follow routes of %s: %w", m.node, m.lost)
		}
		report(m.node, m.prefix, m.changes, r.cfg.Events, end, out)
	}
	return nil
}

// close ends the subscriptions and waits until everything received is recorded.
func (r *routes) close() {
	for _, m := range r.nodes {
		close(m.done)
		<-m.ended
	}
}
