package topo

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

// known is how a router knows a prefix.
type known struct {
	from *peer    // the router's session it came by; nil: its own
	path []uint32 // AS path, without the router's own AS
}

// sessionChecks: every BGP session is established, seen from its first router that runs FRR.
func (t *Topology) sessionChecks() []Check {
	var checks []Check
	for _, n := range t.nodes {
		for _, p := range n.peers {
			if o := p.remote.node; !n.runsFRR() || o.runsFRR() && o.number < n.number {
				continue
			}
			vrf := ""
			if p.exit != nil {
				vrf = "vrf " + p.exit.vrf() + " "
			}
			checks = append(checks, Check{
				NS:      n.name,
				Command: fmt.Sprintf("vtysh -N %s -c 'show bgp %sneighbors %s json'", n.name, vrf, p.remote.addr6),
				Want:    `"bgpState":\s*"Established"`,
				What:    fmt.Sprintf("BGP session %s-%s established", n.name, p.name),
			})
		}
	}
	return checks
}

// announces reports whether a router that knows a prefix tells it to a peer.
func (t *Topology) announces(n *node, k known, p *peer, prefix netip.Prefix) bool {
	if k.from == nil {
		return true
	}
	if p == k.from {
		return false
	}
	if !p.external() {
		return k.from.external() || n.router.Reflector
	}
	own := slices.Contains(t.origins(n.router.ASN), prefix)
	return (own || n.router.Transit) && !slices.Contains(k.path, p.remote.node.router.ASN)
}

// reach spreads a prefix from the routers that originate it and returns who knows it, and over which sessions it is told.
func (t *Topology) reach(prefix netip.Prefix) (map[*node]known, map[*peer]bool) {
	knows, told := map[*node]known{}, map[*peer]bool{}
	var queue []*node
	for _, n := range t.nodes {
		if n.router != nil && slices.ContainsFunc(n.router.Announce, func(what string) bool { p, _ := t.announced(what); return p == prefix }) {
			knows[n] = known{}
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, p := range n.peers {
			k := knows[n]
			if !t.announces(n, k, p, prefix) {
				continue
			}
			o := p.remote.node
			back := o.peer(n.name)
			told[back] = true
			if _, ok := knows[o]; ok {
				continue
			}
			path := k.path
			if p.external() {
				path = append([]uint32{n.router.ASN}, k.path...)
			}
			knows[o] = known{from: back, path: path}
			queue = append(queue, o)
		}
	}
	return knows, told
}

func (n *node) peer(name string) *peer {
	for _, p := range n.peers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// routeChecks: every router has a route for every prefix BGP brings it, content servers also by every exit.
func (t *Topology) routeChecks() []Check {
	var checks []Check
	for _, prefix := range t.prefixes() {
		knows, told := t.reach(prefix)
		for _, n := range t.nodes {
			if k, ok := knows[n]; !ok || k.from == nil || n.isOn(prefix) {
				continue
			}
			checks = append(checks, Check{
				NS:      n.name,
				Command: fmt.Sprintf("ip -6 route show %s", prefix),
				Want:    t.wantBest(n, told),
				What:    fmt.Sprintf("%s has its BGP route for %s", n.name, prefix),
			})
			for _, x := range n.exits {
				if told[x.peer] {
					checks = append(checks, Check{
						NS:      n.name,
						Command: fmt.Sprintf("ip -6 route show %s table %d", prefix, x.table()),
						Want:    "encap seg6 .*" + regexp.QuoteMeta(locatorStart(x)),
						What:    fmt.Sprintf("%s has a route for %s by exit %s", n.name, prefix, x.name),
					})
				}
			}
		}
	}
	return checks
}

// wantBest: a content server must have the best path of several exits, not just the one that came first.
func (t *Topology) wantBest(n *node, told map[*peer]bool) string {
	var best *exit
	unique := false
	for _, x := range n.exits {
		if !told[x.peer] {
			continue
		}
		switch {
		case best == nil || x.localPref() > best.localPref():
			best, unique = x, true
		case x.localPref() == best.localPref():
			unique = false
		}
	}
	if !n.runsFRR() {
		return " dev " // whatever its program calls itself
	}
	if best != nil && unique {
		if _, border, ok := sharedEnds(n, best.peer.own.node); ok {
			return fmt.Sprintf(`via (%s|%s) .*proto bgp`, regexp.QuoteMeta(border.addr6.String()), regexp.QuoteMeta(border.linkLocal().String()))
		}
	}
	return "proto bgp"
}

func (x *exit) localPref() int {
	if x.peer.spec.LocalPref == nil {
		return 100
	}
	return *x.peer.spec.LocalPref
}

// locatorStart is the locator without the trailing colon: how each of its SIDs begins.
func locatorStart(x *exit) string {
	a := netip.MustParsePrefix(x.peer.own.node.router.Locator).Addr().String()
	return a[:len(a)-1]
}

func (n *node) isOn(prefix netip.Prefix) bool {
	return slices.ContainsFunc(n.ends, func(e *end) bool { return e.link.prefix6 == prefix })
}

// prefixes announced at the start, in the order of their first mention.
func (t *Topology) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, n := range t.nodes {
		if n.router == nil {
			continue
		}
		for _, what := range n.router.Announce {
			if p, err := t.announced(what); err == nil && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}
