package topo

import (
	"strings"
	"testing"
)

// TestUnreachableAddress: such pings were all lost, and such connections failed, for the file's sake and not the network's.
func TestUnreachableAddress(t *testing.T) {
	const links = "links: {one: {ends: [a, b]}, two: {ends: [b, c]}, three: {ends: [c, d]}}\n"
	for _, c := range []struct{ text, want string }{
		{"apps: {p: {type: ping, from: b, to: c}}", "apps.p.from_link: c has no route to b's address on one; name a link of b that c can reach"},
		{"apps: {p: {type: ping, from: b, to: c, from_link: two}}", ""},
		{"apps: {p: {type: ping, from: c, to: b, from_link: two}}", "apps.p.to_link: c has no route to b's address on one"},
		{"apps: {p: {type: ping, from: c, to: b, to_link: two}}", ""},
		{"apps: {p: {type: stream, from: c, to: b}}", ""}, // b's address is what routing gives
		{"apps: {p: {type: stream, from: b, to: c}}", "apps.p.from_link: c has no route to b's address on one"},
		{"apps: {p: {type: ping, from: b, to: c}}\nnodes: {c: {gateway: b}}", ""},
		{"apps: {p: {type: ping, from: b, to: c}}\nnodes: {c: {run: [ip route add default dev two]}}", ""},
		{"apps: {p: {type: ping, from: b, to: c}}\ntimeline: [{at_s: 1, node: c, run: ip route add default dev two}]", ""},
		{"apps: {p: {type: ping, from: a, to: d}}\nnodes: {b: {forward: true}, c: {forward: true}}", ""},
		{"apps: {p: {type: stream, from: b, to: c, to_link: three}}\nnodes: {c: {per_link_routes: true, gateway: b}}", "apps.p.from_link: c has no route to b's address on one"},
	} {
		_, err := New(parse(t, links+c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s:\n%v, want %q", c.text, err, c.want)
		}
	}
}
