package topo

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// eventLines returns the lines of all steps of each event, with the namespace in front.
func eventLines(t *testing.T, topology *Topology) [][]string {
	t.Helper()
	var all [][]string
	for _, ev := range topology.spec.Timeline {
		steps, err := topology.EventSteps(ev)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{}
		for _, s := range steps {
			for _, l := range s.Lines {
				lines = append(lines, s.NS+": "+l)
			}
		}
		all = append(all, lines)
	}
	return all
}

func expectLines(t *testing.T, got, want [][]string) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("event %d:\n got %s\nwant %s", i, strings.Join(got[i], "\n     "), strings.Join(want[i], "\n     "))
		}
	}
}

// network is the vtysh call that changes one prefix in an instance.
func network(router, instance, line string) string {
	return router + ": vtysh -N " + router + " -c 'configure terminal' -c 'router bgp " + instance + "' -c 'address-family ipv6 unicast' -c '" + line + "' -c exit -c exit"
}

func TestAnnounce(t *testing.T) {
	topology := read(t, epeFile, `
timeline:
  - {at_s: 1, router: isp, peer: ta, withdraw: access}
  - {at_s: 2, router: isp, peer: tb, withdraw: access}
  - {at_s: 3, router: isp, peer: ta, announce: access}
  - {at_s: 4, router: isp, announce: "2001:db8:c::/48"}
  - {at_s: 5, router: isp, withdraw: access}
  - {at_s: 6, router: isp, peer: tb, announce: access}
  - {at_s: 7, router: as1, peer: ta, withdraw: csp}
`)
	expectLines(t, eventLines(t, topology), [][]string{
		{network("isp", "64500", "network 2001:db8:c::/48 route-map withhold-ta")},
		{network("isp", "64500", "no network 2001:db8:c::/48")},
		{network("isp", "64500", "network 2001:db8:c::/48 route-map withhold-tb")},
		{network("isp", "64500", "network 2001:db8:c::/48")},
		{network("isp", "64500", "no network 2001:db8:c::/48")},
		{network("isp", "64500", "network 2001:db8:c::/48 route-map withhold-ta")},
		// The neighbours in the default instance still hear of it; the exit's VRF has no other neighbour than ta.
		{network("as1", "65000", "network 2001:db8:1::/64") +
			" -c 'router bgp 65000 vrf exit-a' -c 'address-family ipv6 unicast' -c 'no network 2001:db8:1::/64' -c exit -c exit"},
	})
	conf := topology.frrConf(topology.node("isp"))
	for _, want := range []string{
		"bgp community-list standard withhold-ta permit 0:1\nroute-map to-ta deny 10\n match community withhold-ta\n",
		"bgp community-list standard withhold-tb permit 0:2\nroute-map to-tb deny 10\n match community withhold-tb\n",
		"route-map withhold-ta permit 10\n set community 0:1\n",
		"route-map withhold-tb permit 10\n set community 0:2\n",
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("configuration of isp lacks\n%s\nit is\n%s", want, conf)
		}
	}
}

// What is only announced later must be in the outbound policy from the start, and not announced before.
func TestAnnounceLater(t *testing.T) {
	topology := read(t, epeFile, `
timeline:
  - {at_s: 1, router: isp, peer: ta, announce: "2001:db8:d::/48"}
`)
	conf := topology.frrConf(topology.node("isp"))
	if !strings.Contains(conf, "prefix-list own permit 2001:db8:d::/48\n") || strings.Contains(conf, " network 2001:db8:d::/48") {
		t.Errorf("configuration of isp:\n%s", conf)
	}
	expectLines(t, eventLines(t, topology), [][]string{{network("isp", "64500", "network 2001:db8:d::/48 route-map withhold-tb")}})
}

// TestOrderInFile: what an event replaces follows from when the others happen, in whichever order the file has them.
func TestOrderInFile(t *testing.T) {
	events := []string{
		"  - {at_s: 1, router: isp, peer: ta, withdraw: access}\n",
		"  - {at_s: 2, router: isp, peer: ta, announce: access}\n",
		"  - {at_s: 3, router: isp, peer: tb, withdraw: access}\n",
	}
	conf := func() string {
		topology := read(t, epeFile, "\ntimeline:\n"+strings.Join(events, ""))
		return topology.frrConf(topology.node("isp"))
	}
	want := conf()
	slices.Reverse(events)
	if got := conf(); got != want {
		t.Errorf("from last to first:\n%s\nwant\n%s", got, want)
	}
}

func TestBlackholeAndCarrier(t *testing.T) {
	topology := read(t, epeFile, `
timeline:
  - {at_s: 1, link: a, blackhole: forward}
  - {at_s: 2, link: access, blackhole: none}
  - {at_s: 3, link: access, carrier: down}
  - {at_s: 4, link: csp, carrier: down}
  - {at_s: 5, link: a, blackhole: both}
  - {at_s: 6, link: a, blackhole: backward}
  - {at_s: 7, link: a, blackhole: backward}
  - {at_s: 8, link: a, blackhole: forward}
  - {at_s: 9, link: a, blackhole: none}
`)
	drop := func(dev string) string {
		return "wire: filter add dev " + dev + " ingress protocol all pref 1 matchall action drop"
	}
	open := func(dev string) string { return "wire: filter del dev " + dev + " ingress pref 1" }
	expectLines(t, eventLines(t, topology), [][]string{
		{drop("l2e1")},
		{},
		{"wire: link set dev l6e1 down", "wire: link set dev l6e2 down"},
		{"wire: link set dev l1e1 down", "wire: link set dev l1e2 down", "wire: link set dev l1e3 down", "wire: link set dev l1e4 down"},
		{drop("l2e2")}, // forward stays closed meanwhile
		{open("l2e1")},
		{},
		{drop("l2e1"), open("l2e2")},
		{open("l2e1")},
	})
	emulatedLink := read(t, "testdata/emulated.yaml", "timeline: [{at_s: 1, link: radio, blackhole: both}, {at_s: 2, link: radio, carrier: down}]")
	expectLines(t, eventLines(t, emulatedLink), [][]string{{}, {}})
}

func TestChangeAddress(t *testing.T) {
	topology := read(t, "testdata/parallel.yaml", `
timeline:
  - {at_s: 1, node: client, on: wifi, address: 10.1.0.77/24}
  - {at_s: 2, node: client, on: wifi, address: 10.1.0.78/24}
  - {at_s: 3, node: client, on: wifi, address: "2001:db8:1::77/64"}
`)
	expectLines(t, eventLines(t, topology), [][]string{
		{
			"client: addr del 10.1.0.1/24 dev wifi",
			"client: addr add 10.1.0.77/24 dev wifi",
			"client: route replace 10.3.0.0/24 via 10.1.0.2 dev wifi",
			"client: route replace 10.1.0.0/24 dev wifi table 1001",
			"client: route replace 10.3.0.0/24 via 10.1.0.2 dev wifi table 1001",
			"client: ip -4 rule add pref 401 from 10.1.0.77 lookup 1001",
			"r1: neigh replace 10.1.0.77 lladdr 02:00:00:01:00:01 dev wifi nud permanent",
		},
		{
			"client: addr del 10.1.0.77/24 dev wifi",
			"client: addr add 10.1.0.78/24 dev wifi",
			"client: route replace 10.3.0.0/24 via 10.1.0.2 dev wifi",
			"client: route replace 10.1.0.0/24 dev wifi table 1001",
			"client: route replace 10.3.0.0/24 via 10.1.0.2 dev wifi table 1001",
			"client: ip -4 rule add pref 401 from 10.1.0.78 lookup 1001",
			"r1: neigh replace 10.1.0.78 lladdr 02:00:00:01:00:01 dev wifi nud permanent",
		},
		{
			"client: addr del 2001:db8:1::1/64 dev wifi",
			"client: addr add 2001:db8:1::77/64 dev wifi nodad",
			"client: route replace 2001:db8:3::/64 via 2001:db8:1::2 dev wifi",
			"client: route replace 2001:db8:1::/64 dev wifi table 1001",
			"client: route replace 2001:db8:3::/64 via 2001:db8:1::2 dev wifi table 1001",
			"client: ip -6 rule add pref 401 from 2001:db8:1::77 lookup 1001",
			"r1: neigh replace 2001:db8:1::77 lladdr 02:00:00:01:00:01 dev wifi nud permanent",
		},
	})
}

// TestAddressHandedOver: an end may take the address that another one has left before, not one that is in use.
func TestAddressHandedOver(t *testing.T) {
	for _, c := range []struct{ before, want string }{
		{"{at_s: 1, node: b, on: l, address: 10.1.0.9/24}", ""},
		{"{at_s: 3, node: b, on: l, address: 10.1.0.9/24}", "address: 10.1.0.2/24 is that of b"},
		{`{at_s: 1, node: b, on: l, address: "2001:db8:1::9/64"}`, "address: 10.1.0.2/24 is that of b"},
		{"{at_s: 1, node: b, on: l, address: 10.1.0.9/24}, {at_s: 1.5, node: b, on: l, address: 10.1.0.2/24}", "address: 10.1.0.2/24 is that of b"},
		{"{at_s: 1, jitter_ms: 1500, node: b, on: l, address: 10.1.0.9/24}", "address: 10.1.0.2/24 is that of b"},
		{"{at_s: 2, node: b, on: l, address: 10.1.0.1/24}", ""}, // they change places
		{"{at_s: 0.5, node: b, on: l, address: 10.1.0.9/24}, {at_s: 2, node: a, on: l, address: 10.1.0.8/24}", "address: a gets two of one family on l at the same time"},
		{"{at_s: 0.5, node: b, on: l, address: 10.1.0.9/24}, {at_s: 1, jitter_ms: 1500, node: a, on: l, address: 10.1.0.8/24}", "address: a gets two of one family on l at the same time"},
		{"{at_s: 0.5, node: b, on: l, address: 10.1.0.9/24}, {at_s: 1, jitter_ms: 500, node: a, on: l, address: 10.1.0.8/24}", ""},
		{`{at_s: 0.5, node: b, on: l, address: 10.1.0.9/24}, {at_s: 2, node: a, on: l, address: "2001:db8:1::8/64"}`, ""},
	} {
		_, err := New(parse(t, "links: {l: {ends: [a, b]}}\ntimeline: ["+c.before+", {at_s: 2, node: a, on: l, address: 10.1.0.2/24}]"))
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v, want %q", c.before, err, c.want)
		}
	}
}

// TestOrderAtOneTime: of two events at the same time, one with jitter would have done what both do, at the time of the other.
func TestOrderAtOneTime(t *testing.T) {
	file := "links: {l: {ends: [a, b]}}\nrouters: {a: {asn: 1, announce: [l], peers: {b: {}}}, b: {asn: 2, peers: {a: {}}}}\n" +
		"timeline: [{at_s: 1, router: a, announce: l, index: 0}, {at_s: 1, router: a, withdraw: l, index: 1%}]"
	if _, err := New(parse(t, strings.ReplaceAll(file, "%", ""))); err != nil {
		t.Error(err)
	}
	const want = "timeline.1.jitter_ms: may delay the event behind timeline.0"
	if _, err := New(parse(t, strings.ReplaceAll(file, "%", ", jitter_ms: 500"))); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
