package topo

import (
	"slices"
	"strings"
	"testing"
)

// routeWanted lists node, prefix and exit of the route checks.
func routeWanted(topology *Topology) []string {
	var got []string
	for _, c := range topology.routeChecks() {
		got = append(got, c.What)
	}
	return got
}

// Two stubs and what is between them: a transit passes routes on, a third stub does not.
func TestReadyTransit(t *testing.T) {
	text := `
links: {l: {ends: [x, m]}, r: {ends: [m, y]}, lan: {ends: [y, h]}}
routers:
  x: {asn: 1, peers: {m: {}}}
  m: {asn: 2, peers: {x: {}, y: {}}}
  y: {asn: 3, announce: [lan], peers: {m: {}}}
`
	for _, c := range []struct {
		text string
		want []string
	}{
		{text, []string{"m has its BGP route for 2001:db8:3::/64"}},
		{strings.Replace(text, "asn: 2,", "asn: 2, transit: true,", 1), []string{"x has its BGP route for 2001:db8:3::/64", "m has its BGP route for 2001:db8:3::/64"}},
	} {
		topology, err := New(parse(t, c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := routeWanted(topology); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A local preference of 0 is the least there is, and not FRR's own of 100.
func TestLocalPrefZero(t *testing.T) {
	for given, want := range map[string]string{"local_pref: 0": " set local-preference 0\n", "local_pref: 7": " set local-preference 7\n", "": ""} {
		topology, err := New(parse(t, `
links: {l: {ends: [x, y]}, lan: {ends: [y, h]}}
routers:
  x: {asn: 1, peers: {y: {`+given+`}}}
  y: {asn: 2, announce: [lan], peers: {x: {}}}
`))
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, file := range topology.Plan().Files {
			text += file.Content
		}
		if set := strings.Contains(text, "set local-preference"); set != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%q gives\n%s", given, text)
		}
	}
}

// What is announced by the timeline only must not be waited for.
func TestReadyLater(t *testing.T) {
	topology, err := New(parse(t, `
links: {l: {ends: [x, y]}, lan: {ends: [y, h]}}
routers:
  x: {asn: 1, peers: {y: {}}}
  y: {asn: 2, peers: {x: {}}}
timeline: [{at_s: 0, router: y, announce: lan}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := routeWanted(topology); len(got) > 0 {
		t.Errorf("got %q, want no route check", got)
	}
	if got := len(topology.sessionChecks()); got != 1 {
		t.Errorf("got %d session checks, want 1", got)
	}
}
