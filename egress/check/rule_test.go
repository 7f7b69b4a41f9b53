package check

import (
	"strings"
	"testing"
)

// A rule of somebody else's may send what comes from the host's own address another way, as on hosts with several lines: encapsulated packets come from there, and take it too.
func TestRuleOfTunnelSource(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 rule add priority 600 from %s lookup 900", n.server, server)
	n.ip("-n %s -6 route add unreachable fc00::/16 table 900", n.server)
	out := n.run()
	n.want(out, map[string][]Outcome{"way": {Failed, Failed}})
	if text := found(out, "way"); !strings.Contains(text, "from "+server) {
		t.Errorf("got %s", text)
	}
}

// Somebody else's routes in an exit's table keep plait from using it: nobody puts back the rule that is missing until they are gone.
func TestTableOfOthers(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 route add 2001:db8:77::/48 dev lo table 101 proto static", n.server)
	out := n.run()
	n.want(out, map[string][]Outcome{"table": {Failed}})
	if text := found(out, "table"); !strings.Contains(text, "route 2001:db8:77::/48") {
		t.Errorf("got %s", text)
	}
}
