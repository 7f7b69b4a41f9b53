package experiment

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (c *checker) checkTimeline() {
	for i := range c.spec.Timeline {
		event, path := &c.spec.Timeline[i], join("timeline", strconv.Itoa(i))
		latest, when := event.AtS+event.JitterMs/1000, fmt.Sprintf("%g s", event.AtS)
		if event.JitterMs > 0 {
			when = fmt.Sprintf("the latest time %g s (at_s and jitter_ms)", latest)
		}
		if c.spec.DurationS > 0 && latest >= c.spec.DurationS {
			c.add(join(path, "at_s"), "%s is not before the end of the cell at %g s (duration_s)", when, c.spec.DurationS)
		}
		c.checkEvent(event, path)
	}
}

// eventKeys are the keys each subject of an event may have, grouped: an event has keys of one group.
var eventKeys = map[string][][]string{
	"link":   {{"set", "forward", "backward"}, {"blackhole"}, {"carrier"}},
	"router": {{"announce"}, {"withdraw"}},
	"node":   {{"run"}, {"address"}},
}

// eventCompanions are keys that go with another.
var eventCompanions = map[string]string{"peer": "router", "on": "address"}

func (c *checker) checkEvent(event *Event, path string) {
	tree := c.tree.descend(strings.Split(path, "."))
	given := tree.only(func(key string) bool { return !tree.get(key).null() }).keys()
	has := func(key string) bool { return slices.Contains(given, key) }
	subjects := slices.DeleteFunc([]string{"link", "router", "node"}, func(s string) bool { return !has(s) })
	if len(subjects) != 1 {
		c.add(path, "an event needs exactly one of link, router and node; it has %s", orNone(subjects))
		return
	}
	subject := subjects[0]
	var actions, mine []string
	for _, group := range eventKeys[subject] {
		mine = append(mine, group...)
		if slices.ContainsFunc(group, has) {
			actions = append(actions, strings.Join(slices.DeleteFunc(slices.Clone(group), func(k string) bool { return !has(k) }), ", "))
		}
	}
	if len(actions) != 1 {
		c.add(path, "an event of a %s does one thing (%s); it has %s", subject, strings.Join(mine, ", "), orNone(actions))
	}
	for _, key := range given {
		companion, isCompanion := eventCompanions[key]
		if key != "at_s" && key != "jitter_ms" && key != subject && !slices.Contains(mine, key) && !(isCompanion && has(companion)) {
			c.add(join(path, key), "%s is not for an event of a %s (%s)", key, subject, strings.Join(mine, ", "))
		}
	}
	switch subject {
	case "link":
		if c.isLink(join(path, "link"), event.Link) && len(c.spec.Links[event.Link].Ends) > 2 {
			c.add(join(path, "link"), "%s is a LAN, which does not change", event.Link)
		}
		c.checkChanges(tree, slices.DeleteFunc(given, func(key string) bool { return !slices.Contains(eventKeys["link"][0], key) }), path)
	case "router":
		c.checkRouteEvent(event, path)
	case "node":
		c.checkNodeEvent(event, path)
	}
}

// checkChanges reports an event whose new parameters, given by keys, are none: it would change nothing, and be in the plots. Where parameters of
// the experiment took them away, or are them, another cell has some.
func (c *checker) checkChanges(event *node, keys []string, path string) {
	empty := func(key string) bool {
		change := event.get(key)
		return change.kind == yaml.MappingNode && len(change.fields) == 0 && change.from == ""
	}
	if len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool { return !empty(key) }) {
		c.add(path, "changes nothing, for %s has no parameter of the link; give one, such as delay_ms", strings.Join(keys, ", "))
	}
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " and ")
}

func (c *checker) checkRouteEvent(event *Event, path string) {
	if !c.known(join(path, "router"), "router", event.Router, sortedKeys(c.spec.Routers)) {
		return
	}
	router := c.spec.Routers[event.Router]
	if event.Peer != "" && router.Peers[event.Peer] == nil {
		if other := c.spec.Routers[event.Peer]; other == nil || other.Peers[event.Router] == nil {
			c.add(join(path, "peer"), "%s is not a peer of %s%s", event.Peer, event.Router, suggest(event.Peer, sortedKeys(router.Peers)))
		}
	}
	if event.Announce != "" {
		c.checkRoute(join(path, "announce"), event.Announce)
	}
	withdrawn := func(what string) bool { return what != "" && c.prefix6(what) == c.prefix6(event.Withdraw) }
	if event.Withdraw == "" || slices.ContainsFunc(router.Announce, withdrawn) {
		return
	}
	if !slices.ContainsFunc(c.spec.Timeline, func(e Event) bool {
		return e.Router == event.Router && withdrawn(e.Announce) && e.AtS < event.AtS
	}) {
		c.add(join(path, "withdraw"), "%s does not announce %s before %g s", event.Router, event.Withdraw, event.AtS)
	}
}

func (c *checker) checkNodeEvent(event *Event, path string) {
	if !c.isNode(join(path, "node"), event.Node) || event.Address == "" {
		return
	}
	if _, err := netip.ParsePrefix(event.Address); err != nil {
		c.add(join(path, "address"), "%s is not an address with its prefix length, such as 2001:db8:1::9/64", event.Address)
	}
	if event.On == "" {
		c.add(path, "missing key on: the link whose address changes")
		return
	}
	c.isEnd(join(path, "on"), event.On, event.Node)
}
