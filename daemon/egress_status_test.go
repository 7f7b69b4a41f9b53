package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
)

// Routes of the main table have the number that ip -6 route show table takes: 0 would be all tables.
func TestMainTable(t *testing.T) {
	plan, err := egress.NewPlan([]egress.Exit{{Name: "a", RouteTarget: "65000:11", Locators: []netip.Prefix{netip.MustParsePrefix("2001:db8:f1::/48")}, Table: firstTable}})
	if err != nil {
		t.Fatal(err)
	}
	client, sid := netip.MustParsePrefix("2001:db8:c::/48"), netip.MustParseAddr("2001:db8:f1:1::")
	plan.Apply([]egress.Update{
		{Key: egress.Key{Prefix: client}, Route: &egress.Route{NextHop: netip.MustParseAddr("2001:db8:1::3")}},
		{Key: egress.Key{Distinguisher: "65000:1", Prefix: client}, Route: &egress.Route{SID: sid, RouteTargets: []string{"65000:11"}, NextHop: sid}},
	})
	routes, _ := (&exits{plan: plan}).entries(netip.Prefix{})
	tables := map[uint32]bool{}
	for _, r := range routes {
		tables[r.Table] = true
	}
	if len(tables) != 2 || !tables[firstTable] || !tables[unix.RT_TABLE_MAIN] {
		t.Errorf("got %+v, want tables %d and %d", routes, firstTable, unix.RT_TABLE_MAIN)
	}
}

// An address stands for its prefix, also as ss shows IPv4 clients of servers that listen on IPv6.
func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::1/128", "2001:db8::1/32": "2001:db8::/32"} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
}

// What is refused is told as it is: a route of the default table has no SID.
func TestRefusals(t *testing.T) {
	x := choosing(t, Service{egress.Throughput, 0})
	multicast := egress.Key{Reflector: netip.MustParseAddr("192.0.2.9"), Prefix: netip.MustParsePrefix("ff00::/8")}
	outside := egress.Key{Reflector: multicast.Reflector, Distinguisher: "a", Prefix: netip.MustParsePrefix("2001:db8:d::/48")}
	x.plan.Apply([]egress.Update{{Key: multicast, Route: &egress.Route{NextHop: netip.MustParseAddr("2001:db8:1::1")}},
		{Key: outside, Route: &egress.Route{SID: netip.MustParseAddr("2001:db8:99::"), RouteTargets: []string{"65000:0"}}}})
	want := []RefusedStatus{{"a", egress.OutsideLocator.String(), 1, "2001:db8:d::/48 2001:db8:99::"}, {"default table", egress.NotUnicast.String(), 1, "ff00::/8"}}
	got := x.refusals()
	slices.SortFunc(got, func(a, b RefusedStatus) int { return strings.Compare(a.From, b.From) })
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
