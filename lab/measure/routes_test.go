package measure

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestApply(t *testing.T) {
	prefix := netip.MustParsePrefix("2001:db8:c::/48")
	route := func(table, metric int, gateway, dst string) *netlink.Route {
		_, d, err := net.ParseCIDR(dst)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.Route{Table: table, Priority: metric, Gw: net.ParseIP(gateway), LinkIndex: 2, Dst: d, Type: unix.RTN_UNICAST, Family: unix.AF_INET6}
	}
	to := prefix.String()
	unreachable := route(254, 20, "", to)
	unreachable.Type = unix.RTN_UNREACHABLE
	both := route(254, 20, "", to)
	both.MultiPath = []*netlink.NexthopInfo{{Gw: net.ParseIP("fe80::1"), LinkIndex: 2}, {Gw: net.ParseIP("fe80::2"), LinkIndex: 2}}

	m := &routeMonitor{prefix: prefix, devices: map[int]string{2: "a"}, tables: map[int][]hop{}}
	for i, step := range []struct {
		kind, flags uint16
		route       *netlink.Route
		changed     bool
		text        string // of the table afterwards
	}{
		{unix.RTM_NEWROUTE, 0, route(254, 20, "fe80::1", to), true, "via fe80::1 dev a"},
		{unix.RTM_NEWROUTE, unix.NLM_F_REPLACE, route(254, 20, "fe80::1", to), false, "via fe80::1 dev a"},
		{unix.RTM_NEWROUTE, unix.NLM_F_REPLACE, route(254, 20, "fe80::2", to), true, "via fe80::2 dev a"},
		{unix.RTM_NEWROUTE, 0, route(254, 1024, "fe80::3", to), true, "via fe80::2 dev a, via fe80::3 dev a"},
		{unix.RTM_DELROUTE, 0, route(254, 20, "fe80::2", to), true, "via fe80::3 dev a"},
		{unix.RTM_DELROUTE, 0, route(254, 20, "fe80::2", to), false, "via fe80::3 dev a"},
		{unix.RTM_DELROUTE, 0, route(254, 1024, "fe80::3", to), true, "no route"},
		{unix.RTM_NEWROUTE, 0, both, true, "via fe80::1 dev a, via fe80::2 dev a"},
		{unix.RTM_NEWROUTE, unix.NLM_F_REPLACE, unreachable, true, "no route"},
		{unix.RTM_NEWROUTE, 0, route(101, 20, "fe80::1", to), true, "via fe80::1 dev a"},
		{unix.RTM_NEWROUTE, 0, route(10, 20, "fe80::1", to), false, "no route"},  // a table below those of the exits
		{unix.RTM_NEWROUTE, 0, route(255, 20, "fe80::1", to), false, "no route"}, // local
		{unix.RTM_NEWROUTE, 0, route(254, 20, "fe80::1", "2001:db8:c::/64"), false, "no route"},
	} {
		if changed := m.apply(step.kind, step.flags, step.route); changed != step.changed || describe(m.tables[step.route.Table]) != step.text {
			t.Errorf("step %d: changed %v, %q; want %v, %q", i, changed, describe(m.tables[step.route.Table]), step.changed, step.text)
		}
	}
}

func TestMatchesDefault(t *testing.T) {
	m := &routeMonitor{prefix: netip.MustParsePrefix("0.0.0.0/0")}
	if !m.matches(&netlink.Route{Family: unix.AF_INET}) || m.matches(&netlink.Route{Family: unix.AF_INET6}) {
		t.Error("the default route of one family is not that of the other")
	}
}
