package topo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"plait.dev/plait/lab/experiment"
)

// EventSteps returns what an event of the timeline does other than changing a link's parameters or running a command:
// blackhole, carrier, address, announce and withdraw. There are none for an emulated link, whose changes package emu
// makes. What an announcement, an address or a blackhole replaces is worked out from the events before it in
// the timeline New was given.
func (t *Topology) EventSteps(ev experiment.Event) ([]Step, error) {
	switch {
	case ev.Blackhole != "":
		return t.blackhole(ev)
	case ev.Carrier != "":
		return t.carrier(ev)
	case ev.Router != "":
		return t.announce(ev)
	case ev.Address != "":
		return t.changeAddress(ev)
	}
	return nil, nil
}

// checkEvents lets New reject what EventSteps could not do.
func (t *Topology) checkEvents() error {
	for _, ev := range t.spec.Timeline {
		if _, err := t.EventSteps(ev); err != nil {
			return fmt.Errorf("timeline.%d.%w", ev.Index, err)
		}
		for _, next := range t.spec.Timeline {
			follows := next.AtS > ev.AtS || next.AtS == ev.AtS && ev.JitterMs > 0 && next.Index != ev.Index
			if follows && next.AtS <= ev.AtS+ev.JitterMs/1000 && t.dependent(ev, next) {
				return fmt.Errorf("timeline.%d.jitter_ms: may delay the event behind timeline.%d, and what they do depends on their order", ev.Index, next.Index)
			}
		}
	}
	return nil
}

// dependent reports whether the steps of one event depend on whether the other has happened.
func (t *Topology) dependent(a, b experiment.Event) bool {
	if a.Router != "" && a.Router == b.Router {
		p, _ := t.announced(a.Announce + a.Withdraw)
		q, _ := t.announced(b.Announce + b.Withdraw)
		return p == q
	}
	return a.Address != "" && b.Address != "" && a.Node == b.Node && a.On == b.On
}

// blackhole drops packets where they enter the link; those on it still arrive. A direction in which nothing changes is not touched: there is no way
// to replace its filter without letting packets through meanwhile.
func (t *Topology) blackhole(ev experiment.Event) ([]Step, error) {
	l := t.link(ev.Link)
	switch l.kind {
	case emulated:
		return nil, nil
	case bridged:
		return nil, fmt.Errorf("blackhole: %s is a LAN, which has no directions", l.name)
	}
	was, is := [2]bool{}, holes(ev)
	for _, before := range t.spec.Timeline {
		if before == ev {
			break
		}
		if before.Link == ev.Link && before.Blackhole != "" {
			was = holes(before)
		}
	}
	var lines []string
	for i, s := range l.stages() {
		switch {
		case is[i] && !was[i]:
			lines = append(lines, fmt.Sprintf("filter add dev %s ingress protocol all pref 1 matchall action drop", s.near))
		case was[i] && !is[i]:
			lines = append(lines, fmt.Sprintf("filter del dev %s ingress pref 1", s.near))
		}
	}
	return step(wire, "tc", lines), nil
}

// holes says whether a blackhole takes what is sent forward, and what is sent backward.
func holes(ev experiment.Event) [2]bool {
	both := ev.Blackhole == "both"
	return [2]bool{both || ev.Blackhole == "forward", both || ev.Blackhole == "backward"}
}

// carrier takes down the inner sides: both ends lose the carrier but stay configured, as with a pulled cable.
func (t *Topology) carrier(ev experiment.Event) ([]Step, error) {
	l := t.link(ev.Link)
	if l.kind == emulated {
		return nil, nil
	}
	var lines []string
	for _, e := range l.ends {
		lines = append(lines, fmt.Sprintf("link set dev %s %s", e.wireEnd(), ev.Carrier))
	}
	return step(wire, "ip", lines), nil
}

// announcement is the state of a prefix in one BGP instance of a router.
type announcement struct {
	prefix netip.Prefix
	in     instance
	held   []*peer // that do not hear of it
}

// announcement returns the state after the events up to atS; before the timeline starts, atS is negative.
func (t *Topology) announcement(n *node, in instance, prefix netip.Prefix, atS float64) announcement {
	a := announcement{prefix: prefix, in: in}
	is := func(what string) bool { p, err := t.announced(what); return what != "" && err == nil && p == prefix }
	if !slices.ContainsFunc(n.router.Announce, is) {
		a.held = in.peers
	}
	for _, ev := range t.spec.Timeline {
		if ev.Router != n.name || ev.AtS > atS || !is(ev.Announce) && !is(ev.Withdraw) {
			continue
		}
		var held []*peer
		for _, p := range in.peers {
			meant := ev.Peer == "" || ev.Peer == p.name
			if meant && is(ev.Withdraw) || !meant && slices.Contains(a.held, p) {
				held = append(held, p)
			}
		}
		a.held = held
	}
	return a
}

// network is the argument of the network command, or false if no peer hears of the prefix.
//
// A prefix withheld from some peers carries a community that their outbound policy denies. The change of the attribute
// goes out at once, while a change of a neighbour's outbound policy waits for a timer of 100 ms (bgp_announce_route).
func (a announcement) network() (string, bool) {
	if len(a.held) == len(a.in.peers) {
		return "", false
	}
	if len(a.held) == 0 {
		return a.prefix.String(), true
	}
	return fmt.Sprintf("%s route-map %s", a.prefix, withhold(a.held).Name), true
}

func withhold(from []*peer) frrWithhold {
	w := frrWithhold{Name: "withhold"}
	var communities []string
	for _, p := range from {
		w.Name += "-" + p.name
		communities = append(communities, fmt.Sprintf("0:%d", p.number))
	}
	w.Communities = strings.Join(communities, " ")
	return w
}

// withheld lists the sets of peers the timeline withholds a prefix from while another peer hears of it.
func (t *Topology) withheld(n *node) [][]*peer {
	var sets [][]*peer
	for _, ev := range t.spec.Timeline {
		if ev.Router != n.name {
			continue
		}
		prefix, _ := t.announced(ev.Announce + ev.Withdraw)
		for _, in := range t.instances(n) {
			held := t.announcement(n, in, prefix, ev.AtS).held
			known := slices.ContainsFunc(sets, func(s []*peer) bool { return slices.Equal(s, held) })
			if len(held) > 0 && len(held) < len(in.peers) && !known {
				sets = append(sets, held)
			}
		}
	}
	return sets
}

func (t *Topology) announce(ev experiment.Event) ([]Step, error) {
	n := t.node(ev.Router)
	if n == nil || n.router == nil {
		return nil, fmt.Errorf("router: there is no router %s", ev.Router)
	}
	if (ev.Announce == "") == (ev.Withdraw == "") {
		return nil, fmt.Errorf("router: want either announce or withdraw")
	}
	prefix, err := t.announced(ev.Announce + ev.Withdraw)
	if err != nil {
		return nil, fmt.Errorf("announce or withdraw: %w", err)
	}
	if ev.Peer != "" && n.router.Peers[ev.Peer] == nil {
		return nil, fmt.Errorf("peer: %s is no peer of router %s", ev.Peer, n.name)
	}
	command := fmt.Sprintf("vtysh -N %s -c 'configure terminal'", n.name)
	for _, in := range t.instances(n) {
		if len(in.peers) == 0 {
			continue
		}
		line, ok := t.announcement(n, in, prefix, ev.AtS).network()
		if !ok {
			line = prefix.String()
		}
		command += fmt.Sprintf(" -c '%s' -c 'address-family ipv6 unicast' -c '%snetwork %s' -c exit -c exit",
			in.header(n), map[bool]string{false: "no "}[ok], line)
	}
	return step(n.name, "sh", []string{command}), nil
}

func (in instance) header(n *node) string {
	s := fmt.Sprintf("router bgp %d", n.router.ASN)
	if in.exit != nil {
		s += " vrf " + in.exit.vrf()
	}
	return s
}

// changeAddress replaces the address the node has on the link at that time, and what the plan derived from it.
func (t *Topology) changeAddress(ev experiment.Event) ([]Step, error) {
	n, l := t.node(ev.Node), t.link(ev.On)
	if l == nil || n == nil || l.end(n) == nil {
		return nil, fmt.Errorf("on: %q is no link of node %s", ev.On, ev.Node)
	}
	next, err := netip.ParsePrefix(ev.Address)
	if err != nil {
		return nil, fmt.Errorf("address: %q is no address with a prefix length", ev.Address)
	}
	e := l.end(n)
	was, in := netip.PrefixFrom(e.addr6, l.prefix6.Bits()), l.prefix6
	if next.Addr().Is4() {
		was, in = netip.PrefixFrom(e.addr4, l.prefix4.Bits()), l.prefix4
	}
	if next.Masked() != in {
		return nil, fmt.Errorf("address: %s is not in the link's prefix %s", next, in)
	}
	for _, o := range l.ends {
		if o != e && t.mayHave(o, next.Addr(), ev.AtS) {
			return nil, fmt.Errorf("address: %s is that of %s", next, o.node.name)
		}
	}
	at := 0 // changes of this address that may be at the time of ev: its own, if the one before is to be known
	for _, o := range t.spec.Timeline {
		p, err := netip.ParsePrefix(o.Address)
		if err != nil || o.Node != ev.Node || o.On != ev.On || p.Addr().Is4() != next.Addr().Is4() {
			continue
		}
		if o.AtS <= ev.AtS+ev.JitterMs/1000 && ev.AtS <= o.AtS+o.JitterMs/1000 {
			at++
		}
		if o.AtS < ev.AtS {
			was = p
		}
	}
	if at > 1 {
		return nil, fmt.Errorf("address: %s gets two of one family on %s at the same time, jitter included: one of them, or a time of its own for each", ev.Node, ev.On)
	}
	return t.replaceAddress(e, was, next), nil
}

// mayHave says that an end has the address then: by the plan or an event before, and no event has replaced it for sure.
func (t *Topology) mayHave(e *end, a netip.Addr, atS float64) bool {
	has := a == e.addr6 || a == e.addr4
	for _, o := range t.spec.Timeline {
		p, err := netip.ParsePrefix(o.Address)
		if err != nil || o.Node != e.node.name || o.On != e.link.name || o.AtS > atS || p.Addr().Is4() != a.Is4() {
			continue
		}
		has = p.Addr() == a || has && o.AtS+o.JitterMs/1000 > atS
	}
	return has
}

// replaceAddress adds the routes again, because IPv4 loses them with the last address of an interface.
func (t *Topology) replaceAddress(e *end, was, next netip.Prefix) []Step {
	n := e.node
	lines := []string{
		fmt.Sprintf("addr del %s dev %s", was, e.link.name),
		fmt.Sprintf("addr add %s dev %s%s", next, e.link.name, map[bool]string{true: " nodad"}[next.Addr().Is6()]),
	}
	same := func(r route) bool { return r.out == e && r.to.Addr().Is6() == next.Addr().Is6() }
	for _, r := range t.routes(n, nil) {
		if same(r) {
			lines = append(lines, r.command(0))
		}
	}
	if n.spec.PerLinkRoutes {
		for _, r := range t.routes(n, e) {
			if same(r) {
				lines = append(lines, r.command(linkTable+e.link.index))
			}
		}
	}
	steps := step(n.name, "ip", lines)
	if n.spec.PerLinkRoutes {
		steps = append(steps, step(n.name, "sh", []string{linkRule(next.Addr(), e)})...)
	}
	for _, o := range e.link.ends {
		if o != e {
			steps = append(steps, step(o.node.name, "ip", []string{neighbour(next.Addr(), e, e.link.name)})...)
		}
	}
	return steps
}
