package topo

import (
	"fmt"
	"net/netip"
	"slices"
)

// Preferences and tables of the rules a plan adds; link and exit numbers are added to the bases.
const (
	exitTable       = 100  // table of exit number i: 100+i
	linkTable       = 1000 // table of a node's own routes by link: 1000+index, beyond the kernel's 253 to 255
	linkRulePref    = 400
	epeRulePref     = 501   // looks up the exit's table
	epeStopPref     = 502   // stops what found nothing there
	tapQueuePackets = 10000 // the emulator reads at once; this only bridges a burst
)

// hop is where packets for a link's prefix go: out of the node's interface out, to via; via is nil if the link is the node's own.
type hop struct {
	out, via *end
}

// paths returns the first hop of the shortest path from a node to every link it can reach over forwarding nodes that
// speak no BGP. If first is given, only paths that start there count. Ties go to the link earlier in the file.
func (t *Topology) paths(from *node, first *end) map[*link]hop {
	reached := map[*link]hop{}
	visited := map[*node]bool{from: true}
	type item struct {
		n *node
		h hop
	}
	queue := []item{{n: from}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range at.n.ends {
			if at.n == from && first != nil && e != first {
				continue
			}
			h := at.h
			if at.n == from {
				h = hop{out: e}
			}
			if _, ok := reached[e.link]; !ok {
				reached[e.link] = h
			}
			for _, o := range e.link.ends {
				if visited[o.node] {
					continue
				}
				visited[o.node] = true
				if o.node.spec.Forward && o.node.router == nil {
					next := h
					if at.n == from {
						next.via = o
					}
					queue = append(queue, item{o.node, next})
				}
			}
		}
	}
	return reached
}

// route is one line of a routing table.
type route struct {
	to  netip.Prefix
	out *end
	via netip.Addr // not valid: on the link
}

func (r route) command(table int) string {
	s := "route replace " + r.to.String()
	if r.via.IsValid() {
		s += " via " + r.via.String()
	}
	s += " dev " + r.out.link.name
	if table != 0 {
		s += fmt.Sprintf(" table %d", table)
	}
	return s
}

// routes lists the routes of a table of a node: all links by paths, and the default. If first is nil it is the main
// table, which has the node's own links already.
func (t *Topology) routes(n *node, first *end) []route {
	var routes []route
	if n.router == nil {
		hops := t.paths(n, first)
		for _, l := range t.links {
			h, ok := hops[l]
			switch {
			case !ok:
			case h.via != nil:
				routes = append(routes, route{l.prefix6, h.out, h.via.addr6}, route{l.prefix4, h.out, h.via.addr4})
			case first != nil:
				routes = append(routes, route{to: l.prefix6, out: h.out}, route{to: l.prefix4, out: h.out})
			}
		}
	}
	if h, ok := t.gateway(n, first); ok {
		routes = append(routes, route{netip.MustParsePrefix("::/0"), h.out, h.via.addr6}, route{netip.MustParsePrefix("0.0.0.0/0"), h.out, h.via.addr4})
	}
	return routes
}

// gateway is the node's default route: the gateway given, or else the only BGP router it shares a link with.
func (t *Topology) gateway(n *node, first *end) (hop, bool) {
	var found []hop
	for _, e := range n.ends {
		if first != nil && e != first {
			continue
		}
		for _, o := range e.link.ends {
			isGateway := o.node.name == n.spec.Gateway
			if n.spec.Gateway == "" || first != nil && first.link.end(t.node(n.spec.Gateway)) == nil {
				isGateway = n.router == nil && o.node.router != nil
			}
			if isGateway && o != e {
				found = append(found, hop{out: e, via: o})
			}
		}
	}
	given := n.spec.Gateway != "" && len(found) > 0
	if given || len(found) == 1 {
		return found[0], true
	}
	return hop{}, false
}

// interfaceSteps brings interfaces up and gives them addresses and neighbours. Neighbours are permanent, so that no
// resolution is ever lost or delayed on a link.
func (t *Topology) interfaceSteps() []Step {
	var steps []Step
	for _, n := range t.nodes {
		lines := []string{"link set dev lo up"}
		var tc []string
		for _, e := range n.ends {
			if e.link.kind == emulated {
				lines = append(lines, fmt.Sprintf("link set dev %s mtu %d txqueuelen %d", e.link.name, e.link.mtu(), tapQueuePackets))
				tc = append(tc, "qdisc replace dev "+e.link.name+" root noqueue")
			}
			if x := t.exitOf(e); x != nil {
				lines = append(lines, fmt.Sprintf("link set dev %s master %s", e.link.name, x.vrf()))
			}
			lines = append(lines, "link set dev "+e.link.name+" up")
			lines = append(lines, fmt.Sprintf("addr add %s/%d dev %s nodad", e.addr6, e.link.prefix6.Bits(), e.link.name),
				fmt.Sprintf("addr add %s/%d dev %s", e.addr4, e.link.prefix4.Bits(), e.link.name),
				fmt.Sprintf("addr add %s/64 dev %s nodad", e.linkLocal(), e.link.name))
			for _, o := range e.link.ends {
				if o != e {
					lines = append(lines, o.neighbours(e.link.name)...)
				}
			}
		}
		steps = append(steps, step(n.name, "ip", lines)...)
		steps = append(steps, step(n.name, "tc", tc)...)
	}
	return steps
}

// neighbours are the entries for all addresses of an end.
func (e *end) neighbours(dev string) []string {
	addrs := []netip.Addr{e.addr6, e.addr4, e.linkLocal()}
	for _, x := range e.node.exits {
		if e == e.node.ends[0] {
			addrs = append(addrs, e.node.epe(x))
		}
	}
	var lines []string
	for _, a := range addrs {
		lines = append(lines, neighbour(a, e, dev))
	}
	return lines
}

func neighbour(a netip.Addr, of *end, dev string) string {
	return fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", a, of.mac(), dev)
}

// routingSteps are the routes, rules and MPTCP endpoints of a node.
func (t *Topology) routingSteps(n *node) []Step {
	var lines, rules []string
	for _, r := range t.routes(n, nil) {
		lines = append(lines, r.command(0))
	}
	if n.spec.PerLinkRoutes {
		for _, e := range n.ends {
			lines = append(lines, t.linkTableLines(n, e)...)
			rules = append(rules, linkRule(e.addr6, e), linkRule(e.addr4, e))
		}
	}
	lines = append(lines, t.exitRoutes(n)...)
	lines = append(lines, epeLines(n)...)
	rules = append(rules, epeRules(n)...)
	lines = append(lines, t.mptcpLines(n)...)
	return append(step(n.name, "ip", lines), step(n.name, "sh", rules)...)
}

// linkTableLines fill the table of one link, to which rules send the link's addresses. What the table has no route for is unreachable: it would fall through to the main table and leave by another link.
func (t *Topology) linkTableLines(n *node, e *end) []string {
	table := linkTable + e.link.index
	var lines []string
	for _, r := range t.routes(n, e) {
		lines = append(lines, r.command(table))
	}
	if _, ok := t.gateway(n, e); !ok {
		lines = append(lines, fmt.Sprintf("route replace unreachable ::/0 table %d", table), fmt.Sprintf("route replace unreachable 0.0.0.0/0 table %d", table))
	}
	return lines
}

func linkRule(a netip.Addr, e *end) string {
	return rule(linkRulePref+e.link.index, a, fmt.Sprintf("lookup %d", linkTable+e.link.index))
}

// rule is a command for sh: in a batch, ip rule takes every address for IPv4.
func rule(pref int, from netip.Addr, action string) string {
	family := 6
	if from.Is4() {
		family = 4
	}
	return fmt.Sprintf("ip -%d rule add pref %d from %s %s", family, pref, from, action)
}

// mptcpLines set the limits and endpoints of the in-kernel path manager, in the families the applications use: an
// endpoint of another family would be announced for nothing.
func (t *Topology) mptcpLines(n *node) []string {
	m := n.spec.MPTCP
	if m == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("mptcp limits set subflow %d add_addr_accepted %d", m.Subflows, m.AddAddrAccepted)}
	for _, e := range n.ends {
		flags := ""
		for _, f := range []struct {
			links []string
			flag  string
		}{{m.Signal, " signal"}, {slices.Concat(m.Subflow, m.Backup, m.Fullmesh), " subflow"}, {m.Backup, " backup"}, {m.Fullmesh, " fullmesh"}} {
			if slices.Contains(f.links, e.link.name) {
				flags += f.flag
			}
		}
		if flags == "" {
			continue
		}
		for _, family := range t.families() {
			lines = append(lines, fmt.Sprintf("mptcp endpoint add %s dev %s%s", e.addr(family), e.link.name, flags))
		}
	}
	for _, x := range n.exits {
		lines = append(lines, fmt.Sprintf("mptcp endpoint add %s dev %s signal", n.epe(x), n.ends[0].link.name))
	}
	return lines
}

// families the applications use, 6 first.
func (t *Topology) families() []int {
	used := map[int]bool{}
	for _, a := range t.spec.Apps {
		used[a.Family] = true
	}
	var families []int
	if used[6] || used[0] || !used[4] {
		families = append(families, 6)
	}
	if used[4] {
		families = append(families, 4)
	}
	return families
}
