package topo

import (
	"fmt"
	"maps"
	"slices"

	"plait.dev/plait/lab/experiment"
)

// checkApps reports applications of which one side has no route to the address of the other: a host's address is by default that on its first link, which need not
// be the one they share. What BGP will bring is not known before it runs, nor what commands do.
func (t *Topology) checkApps() error {
	if len(t.spec.Routers) > 0 || t.hasCommands() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.spec.Apps)) {
		a := t.spec.Apps[name]
		from, to := t.node(a.From).on(a.FromLink), t.node(a.To).on(a.ToLink)
		source := to // of what the receiver sends; without to_link routing chooses
		if a.ToLink == "" && a.Type != "ping" {
			source = nil
		}
		if !t.hasRoute(t.node(a.To), source, from.link) {
			return fmt.Errorf("apps.%s.from_link: %s has no route to %s's address on %s; name a link of %s that %s can reach", name, a.To, a.From, from.link.name, a.From, a.To)
		}
		if source != nil && !t.hasRoute(t.node(a.From), from, to.link) {
			return fmt.Errorf("apps.%s.to_link: %s has no route to %s's address on %s; name a link of %s that %s can reach", name, a.From, a.To, to.link.name, a.To, a.From)
		}
	}
	return nil
}

// hasCommands says that the file's own commands may set routes.
func (t *Topology) hasCommands() bool {
	return slices.ContainsFunc(t.nodes, func(n *node) bool { return len(n.spec.Run) > 0 }) ||
		slices.ContainsFunc(t.spec.Timeline, func(e experiment.Event) bool { return e.Run != "" })
}

// on is the interface of the node on a link, "" being its first.
func (n *node) on(link string) *end {
	return n.ends[slices.IndexFunc(n.ends, func(e *end) bool { return link == "" || e.link.name == link })]
}

// hasRoute says that packets of a node have a route to a link, if they have the source address of one of its ends; nil is none yet.
func (t *Topology) hasRoute(n *node, source *end, to *link) bool {
	if !n.spec.PerLinkRoutes {
		source = nil
	}
	_, known := t.paths(n, source)[to]
	_, everywhere := t.gateway(n, source)
	return known || everywhere
}
