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
