package egress

import (
	"fmt"
	"net/netip"
)

// candidate is a route in BGP's decision. What stands behind the attributes only breaks ties.
type candidate struct {
	*attributes
	reflector     netip.Addr
	distinguisher string
	pathID        uint32
	exit          int
	beaten        bool // in the step under way
}

// step of BGP's decision process: a route drops out if another one that is still in is better.
type step struct {
	better func(a, b *candidate) bool
	// why says how a beat b.
	why func(a, b *candidate) string
}

// steps are RFC 4271 section 9.1 in its order, as far as a content server can tell routes apart: all of them come from route reflectors of its own AS
// (no EBGP before IBGP), and the way to the exit is not measured (no interior cost). The identifier of the router is the ORIGINATOR_ID (RFC 4456
// section 9). After the reflector's address, all differ in something that only makes the choice the same every time.
var steps = []step{
	{func(a, b *candidate) bool { return a.localPref > b.localPref },
		func(a, b *candidate) string { return fmt.Sprintf("local-pref %d before %d", a.localPref, b.localPref) }},
	{func(a, b *candidate) bool { return len(a.asPath) < len(b.asPath) },
		func(a, b *candidate) string {
			return fmt.Sprintf("AS path of %d before %d", a.length(), b.length())
		}},
	{func(a, b *candidate) bool { return a.origin < b.origin },
		func(a, b *candidate) string { return fmt.Sprintf("origin %d before %d", a.origin, b.origin) }},
	{func(a, b *candidate) bool { return a.med < b.med && a.neighbour() == b.neighbour() },
		func(a, b *candidate) string {
			return fmt.Sprintf("MED %d before %d, both from AS %d", a.med, b.med, a.neighbour())
		}},
	{func(a, b *candidate) bool { return a.routerID.Less(b.routerID) },
		func(a, b *candidate) string { return fmt.Sprintf("router %v before %v", a.routerID, b.routerID) }},
	{func(a, b *candidate) bool { return a.reflector.Less(b.reflector) },
		func(a, b *candidate) string { return fmt.Sprintf("reflector %v before %v", a.reflector, b.reflector) }},
	{func(a, b *candidate) bool { return a.distinguisher < b.distinguisher },
		func(a, b *candidate) string {
			return fmt.Sprintf("route distinguisher %s before %s", a.distinguisher, b.distinguisher)
		}},
	{func(a, b *candidate) bool { return a.pathID < b.pathID },
		func(a, b *candidate) string { return fmt.Sprintf("path %d before %d", a.pathID, b.pathID) }},
	{func(a, b *candidate) bool { return a.exit < b.exit },
		func(_, _ *candidate) string { return "the order of the configuration" }},
}

// decide returns the best of the candidates, reordering them; nil if there are none.
func decide(left []candidate) *candidate {
	if len(left) == 0 {
		return nil
	}
	for i := 0; i < len(steps) && len(left) > 1; i++ {
		left = keep(left, steps[i].better)
	}
	return &left[0]
}

// keep moves those no other is better than to the front and returns them. MED makes "better" a relation that is no order: every pair counts.
func keep(in []candidate, better func(a, b *candidate) bool) []candidate {
	for i := range in {
		in[i].beaten = false
		for j := range in {
			if better(&in[j], &in[i]) {
				in[i].beaten = true
				break
			}
		}
	}
	n := 0
	for i := range in {
		if !in[i].beaten {
			in[n], in[i] = in[i], in[n]
			n++
		}
	}
	return in[:n]
}

// reason says at which step the first beat the second. When neither did directly, a third was in between: MED is not transitive.
func reason(winner, loser *candidate) string {
	for _, s := range steps {
		if s.better(winner, loser) {
			return s.why(winner, loser)
		}
	}
	return "equal"
}
