package experiment

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// checker finds what is wrong with one cell's spec beyond its schema.
type checker struct {
	spec     *Spec
	tree     *node
	problems *Problems
	nodes    []string
	declared []string          // applications of the file, of which this cell may leave some out
	exits    map[string]string // exit -> path of its peer
}

func (c *checker) add(path, format string, args ...any) {
	c.problems.add(c.tree.find(strings.Split(path, ".")), path, format, args...)
}

// isNode and isLink report a name that does not exist.
func (c *checker) isNode(path, name string) bool { return c.known(path, "node", name, c.nodes) }

func (c *checker) isLink(path, name string) bool {
	return c.known(path, "link", name, sortedKeys(c.spec.Links))
}

func (c *checker) known(path, what, name string, all []string) bool {
	if slices.Contains(all, name) {
		return true
	}
	c.add(path, "there is no %s %s%s", what, name, suggest(name, all))
	return false
}

// isEnd reports a link that does not exist or does not end at the node.
func (c *checker) isEnd(path, link, node string) {
	if c.isLink(path, link) && !slices.Contains(c.spec.Links[link].Ends, node) {
		c.add(path, "%s is not an end of the link %s (%s)", node, link, strings.Join(c.spec.Links[link].Ends, ", "))
	}
}

// shareLink says whether two nodes are ends of the same link.
func (c *checker) shareLink(a, b string) bool {
	for _, link := range c.spec.Links {
		if slices.Contains(link.Ends, a) && slices.Contains(link.Ends, b) {
			return true
		}
	}
	return false
}

func (c *checker) checkLinks() {
	for _, name := range sortedKeys(c.spec.Links) {
		link, path := c.spec.Links[name], join("links", name)
		for i, end := range link.Ends {
			if slices.Contains(link.Ends[:i], end) {
				c.add(fmt.Sprintf("%s.ends.%d", path, i), "%s is at both ends", end)
			}
		}
		lan := len(link.Ends) > 2
		if lan && (link.Direction != (Direction{}) || link.Forward != nil || link.Backward != nil) {
			c.add(path, "a link of more than two ends is a LAN without limits; it may only have mtu, prefix6 and prefix4")
		}
	}
	if n := len(c.spec.Links); n > 255 {
		c.add("links", "has %d links, at most 255 have addresses", n)
		return
	}
	directions(c.spec, func(path string, d *Direction) {
		if keys := d.capacities(); len(keys) > 1 {
			c.add(join(path, keys[1]), "a direction has one capacity, not %s together", strings.Join(keys, " and "))
		}
		if d.QueuePackets != nil && d.QueueBytes != nil {
			c.add(join(path, "queue_bytes"), "the queue is limited in packets or in bytes, not both")
		}
		if frame := c.frameOf(path); d.QueueBytes != nil && *d.QueueBytes < frame {
			c.add(join(path, "queue_bytes"), "%d is less than the %d bytes of the link's longest packet (mtu and 14 bytes of header), which would never pass", *d.QueueBytes, frame)
		}
	})
	c.checkPrefixes()
}

// frameOf is the length of the longest packet of the link that a direction is part of, 0 if there is no such link.
func (c *checker) frameOf(path string) int {
	parts := strings.Split(path, ".")
	name := parts[1]
	if i, err := strconv.Atoi(name); err == nil && parts[0] == "timeline" {
		name = c.spec.Timeline[i].Link
	}
	if link := c.spec.Links[name]; link != nil {
		return link.MTU + 14
	}
	return 0
}

// checkPrefixes finds prefixes that are not, or that overlap.
func (c *checker) checkPrefixes() {
	type used struct {
		path   string
		prefix netip.Prefix
	}
	var all []used
	prefix := func(path, text, otherwise string, v4 bool) {
		p, err := netip.ParsePrefix(text)
		if text == "" {
			p, err = netip.ParsePrefix(otherwise)
		}
		if err != nil || p.Addr().Is4() != v4 || p != p.Masked() {
			c.add(path, "%s is not a prefix such as %s", text, otherwise)
			return
		}
		if a := p.Addr(); !a.IsGlobalUnicast() || a.Is4In6() {
			c.add(path, "no host can have an address of %s; take one such as %s", p, otherwise)
		}
		for _, u := range all {
			if u.prefix.Overlaps(p) {
				c.add(path, "%s overlaps with %s of %s", p, u.prefix, u.path)
			}
		}
		all = append(all, used{path, p})
	}
	for _, name := range sortedKeys(c.spec.Links) {
		link, path := c.spec.Links[name], join("links", name)
		prefix(join(path, "prefix6"), link.Prefix6, fmt.Sprintf("2001:db8:%d::/64", link.Index), false)
		prefix(join(path, "prefix4"), link.Prefix4, fmt.Sprintf("10.%d.0.0/24", link.Index), true)
	}
	for _, name := range sortedKeys(c.spec.Routers) {
		if locator := c.spec.Routers[name].Locator; locator != "" {
			path := join(join("routers", name), "locator")
			prefix(path, locator, "2001:db8:f001::/48", false)
			if !strings.HasSuffix(locator, "/48") {
				c.add(path, "%s is not a /48", locator)
			}
		}
	}
}

func (c *checker) checkNodes() {
	for _, name := range sortedKeys(c.spec.Nodes) {
		n, path := c.spec.Nodes[name], join("nodes", name)
		if n.Gateway != "" {
			gateway := join(path, "gateway")
			if c.isNode(gateway, n.Gateway) && (n.Gateway == name || !c.shareLink(name, n.Gateway)) {
				c.add(gateway, "%s and %s share no link", name, n.Gateway)
			}
		}
		if m := n.MPTCP; m != nil {
			for key, links := range map[string][]string{"subflow": m.Subflow, "signal": m.Signal, "backup": m.Backup, "fullmesh": m.Fullmesh} {
				for i, link := range links {
					c.isEnd(fmt.Sprintf("%s.mptcp.%s.%d", path, key, i), link, name)
				}
			}
		}
		for i, exit := range n.Exits {
			exitPath := fmt.Sprintf("%s.exits.%d", path, i)
			c.known(exitPath, "exit", exit, sortedKeys(c.exits))
			if slices.Contains(n.Exits[:i], exit) {
				c.add(exitPath, "%s is listed twice", exit)
			}
		}
		if len(n.Exits) > 0 && c.spec.Routers[name] == nil {
			c.add(join(path, "exits"), "%s must be a router to learn the exits' routes: add it to routers", name)
		}
	}
}

func (c *checker) checkRouters() {
	for _, name := range sortedKeys(c.spec.Routers) {
		router, path := c.spec.Routers[name], join("routers", name)
		for _, peer := range sortedKeys(router.Peers) {
			c.checkPeer(name, peer, router, join(join(path, "peers"), peer))
		}
		for i, what := range router.Announce {
			c.checkRoute(fmt.Sprintf("%s.announce.%d", path, i), what)
		}
	}
}

func (c *checker) checkPeer(name, peer string, router *Router, path string) {
	if !c.known(path, "router", peer, sortedKeys(c.spec.Routers)) {
		return
	}
	if peer == name || !c.shareLink(name, peer) {
		c.add(path, "%s and %s share no link", name, peer)
	}
	p := router.Peers[peer]
	external := c.spec.Routers[peer].ASN != router.ASN
	if p.LocalPref != nil && !external {
		c.add(join(path, "local_pref"), "%s is in the same AS; local_pref is for routes of other ASes", peer)
	}
	if p.Exit == "" {
		return
	}
	exit := join(path, "exit")
	if !external {
		c.add(exit, "%s is in the same AS; an exit leads to another", peer)
	}
	if router.Locator == "" {
		c.add(exit, "the router needs a locator to give the exit a SID")
	}
	if c.spec.Kernel == "6.1" {
		c.add(exit, "the guest with kernel 6.1 has FRR 8.4, whose exits have no SIDs from a /48 and no routes in the router's main table; take kernel 6.12 or newer, or configure FRR as egress-rendered does")
	}
	if c.exits[p.Exit] != exit {
		c.add(exit, "%s is also %s", p.Exit, c.exits[p.Exit])
	}
}

// checkRoute reports what can be neither a link nor a prefix.
func (c *checker) checkRoute(path, what string) {
	if p, err := netip.ParsePrefix(what); err == nil {
		switch {
		case !p.Addr().Is6():
			c.add(path, "%s is not an IPv6 prefix; the routers exchange no others", what)
		case p != p.Masked():
			c.add(path, "%s has bits behind its length; did you mean %s?", what, p.Masked())
		}
		return
	}
	c.known(path, "link (or prefix)", what, sortedKeys(c.spec.Links))
}

// check reports everything wrong with a spec that follows the schema. Apps are all applications of the file.
func check(spec *Spec, tree *node, apps []string, problems *Problems) {
	c := &checker{spec: spec, tree: tree, problems: problems, nodes: spec.NodeNames(), declared: apps, exits: map[string]string{}}
	for _, name := range sortedKeys(spec.Routers) {
		for _, peer := range sortedKeys(spec.Routers[name].Peers) {
			path := fmt.Sprintf("routers.%s.peers.%s.exit", name, peer)
			if exit := spec.Routers[name].Peers[peer].Exit; exit != "" && c.exits[exit] == "" {
				c.exits[exit] = path
			}
		}
	}
	c.checkLinks()
	c.checkNodes()
	c.checkRouters()
	c.checkApps()
	c.checkCongestion()
	c.checkTimeline()
	c.checkMeasure()
}
