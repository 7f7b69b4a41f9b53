package experiment

import (
	"slices"
	"strings"
)

// checkPath reports two nodes between which no packet can pass, whatever the routes.
func (c *checker) checkPath(path, from, to string) {
	if _, ok := c.between(from, to, c.mayForward); ok {
		return
	}
	via, ok := c.between(from, to, func(string) bool { return true })
	if !ok {
		c.add(path, "there is no path from %s to %s: no links join them", from, to)
		return
	}
	mid := via[slices.IndexFunc(via, func(n string) bool { return !c.mayForward(n) })]
	c.add(path, "there is no path from %s to %s: node %s does not forward (nodes.%s.forward: true)", from, to, mid, mid)
}

// between are the nodes on a shortest way between two others, all of them passable.
func (c *checker) between(from, to string, passable func(node string) bool) (via []string, ok bool) {
	before := map[string]string{from: ""}
	queue := []string{from}
	for len(queue) > 0 && before[to] == "" {
		at := queue[0]
		queue = queue[1:]
		for _, name := range sortedKeys(c.spec.Links) {
			ends := c.spec.Links[name].Ends
			if !slices.Contains(ends, at) {
				continue
			}
			for _, end := range ends {
				if _, seen := before[end]; seen {
					continue
				}
				before[end] = at
				if passable(end) {
					queue = append(queue, end)
				}
			}
		}
	}
	if before[to] == "" {
		return nil, false
	}
	for at := before[to]; at != from; at = before[at] {
		via = append(via, at)
	}
	slices.Reverse(via)
	return via, true
}

// mayForward says whether a node routes packets: routers do, and so may a node whose own commands or sysctls speak of it.
// What routes BGP will carry is not known before it runs.
func (c *checker) mayForward(name string) bool {
	node := c.spec.Nodes[name]
	if c.spec.Routers[name] != nil || node != nil && node.Forward {
		return true
	}
	said := sortedKeys(c.spec.Sysctl)
	if node != nil {
		said = slices.Concat(said, sortedKeys(node.Sysctl), node.Run)
	}
	for _, event := range c.spec.Timeline {
		if event.Node == name {
			said = append(said, event.Run)
		}
	}
	return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "forward") })
}
