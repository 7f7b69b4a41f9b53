package topo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// exit is an egress peer of an AS: its routes live in a VRF of their own on the AS border router and reach content
// servers as IPv6 VPN routes with an SRv6 SID (RFC 9252), so that a server can choose it whatever the best path is.
type exit struct {
	name   string
	number int // from 1, by name
	peer   *peer
}

func (x *exit) vrf() string { return "exit-" + x.name }
func (x *exit) table() int  { return exitTable + x.number }

// target is both the route distinguisher and the route target.
func (x *exit) target() string {
	return fmt.Sprintf("%d:%d", x.peer.own.node.router.ASN, 10+x.number)
}

// exitOf returns the exit whose VRF the interface belongs to, nil if none.
func (t *Topology) exitOf(e *end) *exit {
	for _, x := range t.exits {
		if x.peer.own == e {
			return x
		}
	}
	return nil
}

// epe is the EPE address of a content server for an exit: <prefix of its first link>::e<exit number>, in hexadecimal digits.
func (n *node) epe(x *exit) netip.Addr {
	return hostAddress(n.ends[0].link.prefix6, 0xe0+x.number)
}

func (t *Topology) buildExits() error {
	for _, n := range t.nodes {
		for _, p := range n.peers {
			if p.spec.Exit == "" {
				continue
			}
			x := &exit{name: p.spec.Exit, peer: p}
			if err := t.checkExit(x); err != nil {
				return fmt.Errorf("routers.%s.peers.%s.exit: %w", n.name, p.name, err)
			}
			p.exit = x
			t.exits = append(t.exits, x)
		}
	}
	slices.SortFunc(t.exits, func(a, b *exit) int { return strings.Compare(a.name, b.name) })
	for i, x := range t.exits {
		x.number = i + 1
	}
	for _, n := range t.nodes {
		if err := t.chooseExits(n); err != nil {
			return fmt.Errorf("nodes.%s.exits: %w", n.name, err)
		}
	}
	return nil
}

func (t *Topology) checkExit(x *exit) error {
	n := x.peer.own.node
	if !x.peer.external() {
		return fmt.Errorf("%s is in the same AS; an exit is an eBGP neighbour", x.peer.name)
	}
	if slices.ContainsFunc(t.exits, func(o *exit) bool { return o.name == x.name }) {
		return fmt.Errorf("%s is also the name of another exit", x.name)
	}
	if slices.ContainsFunc(t.links, func(l *link) bool { return l.name == x.vrf() }) {
		return fmt.Errorf("%s has a VRF %s, which is the name of a link: choose another for one of them", x.name, x.vrf())
	}
	if t.exitOf(x.peer.own) != nil || len(x.peer.own.link.ends) != 2 {
		return fmt.Errorf("link %s belongs to one exit only: it must join just %s and %s", x.peer.own.link.name, n.name, x.peer.name)
	}
	locator, err := netip.ParsePrefix(n.router.Locator)
	if err != nil || !locator.Addr().Is6() || locator.Bits() != 48 {
		return fmt.Errorf("router %s needs an SRv6 locator, an IPv6 prefix of length 48, not %q", n.name, n.router.Locator)
	}
	return nil
}

func (t *Topology) chooseExits(n *node) error {
	if len(n.spec.Exits) > 0 && (n.router == nil || len(n.ends) == 0) {
		return fmt.Errorf("%s must also be a router with a link: an iBGP client of the reflector", n.name)
	}
	for _, name := range n.spec.Exits {
		i := slices.IndexFunc(t.exits, func(x *exit) bool { return x.name == name })
		if i < 0 {
			return fmt.Errorf("no router has a peer with exit %s", name)
		}
		if t.exits[i].peer.own.node.router.ASN != n.router.ASN {
			return fmt.Errorf("exit %s belongs to another AS", name)
		}
		n.exits = append(n.exits, t.exits[i])
	}
	slices.SortFunc(n.exits, func(a, b *exit) int { return a.number - b.number })
	return nil
}

// vrfCreation makes the VRFs of border routers and content servers.
func (t *Topology) vrfCreation() []Step {
	var steps []Step
	for _, n := range t.nodes {
		var lines []string
		for _, in := range t.instances(n)[1:] {
			lines = append(lines, fmt.Sprintf("link add name %s type vrf table %d", in.exit.vrf(), in.exit.table()),
				fmt.Sprintf("link set dev %s up", in.exit.vrf()))
		}
		if len(lines) > 0 {
			steps = append(steps, Step{NS: n.name, Tool: "ip", Lines: lines},
				// End.DT46 and vrftable need it (seg6_local.c).
				Step{NS: n.name, Tool: "sysctl", Lines: []string{"net.vrf.strict_mode=1"}})
		}
	}
	return steps
}

// exitRoutes leak into each exit's VRF the links its AS announces, for the way back, and the router's own locator:
// nexthop tracking of FRR 10.3 looks the router's own SID up inside the VRF and else takes the VPN route for invalid.
func (t *Topology) exitRoutes(n *node) []string {
	var lines []string
	for _, x := range t.exits {
		if x.peer.own.node != n {
			continue
		}
		for _, prefix := range t.origins(n.router.ASN) {
			for _, e := range n.ends {
				if e.link.prefix6 == prefix && t.exitOf(e) == nil {
					lines = append(lines, route{to: prefix, out: e}.command(x.table()))
				}
			}
		}
		lines = append(lines, fmt.Sprintf("route replace %s dev %s table %d", n.router.Locator, x.vrf(), x.table()))
	}
	return lines
}

// epeLines give a content server its EPE addresses. They are deprecated (preferred_lft 0) and the tunnel source is fixed,
// or the outer header could carry an EPE address and match its rule again.
func epeLines(n *node) []string {
	if len(n.exits) == 0 {
		return nil
	}
	lines := []string{"sr tunsrc set " + n.ends[0].addr6.String()}
	for _, x := range n.exits {
		lines = append(lines, fmt.Sprintf("addr add %s/128 dev %s nodad preferred_lft 0", n.epe(x), n.ends[0].link.name))
	}
	return lines
}

// epeRules tie each EPE address to its exit, before the VRFs' own rule at 1000. The rule behind the look-up stops packets
// when the exit's table has no route: they would fall through to the main table and silently leave by the best path.
func epeRules(n *node) []string {
	var rules []string
	for _, x := range n.exits {
		rules = append(rules, rule(epeRulePref, n.epe(x), fmt.Sprintf("lookup %d", x.table())), rule(epeStopPref, n.epe(x), "unreachable"))
	}
	return rules
}
