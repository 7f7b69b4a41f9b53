package egress

import (
	"fmt"
	"net/netip"
	"slices"
)

// Way is an exit that announces a client's address.
type Way struct {
	Exit   string
	Prefix netip.Prefix // the longest the exit announces of those the client is in
	Route  Route        // the best for it, without route targets
	// Reason says why it stands where it stands, as BGP would order: before what comes next, or for the last one, why it is here.
	Reason string
}

// Main is the prefix of the main table's route to the client, and the exit that packets leave through by it: that of the best path, or where there is none now, of
// the standby. The exit is empty if it is none of the plan's; the prefix is invalid if there is no route.
func (p *Plan) Main(client netip.Addr) (prefix netip.Prefix, exit string) {
	client = client.Unmap()
	for length := client.BitLen(); length >= 0; length-- {
		prefix, err := client.Prefix(length)
		if err != nil || p.lengths[client.Is4()][length] == 0 {
			continue
		}
		d := p.destinations[prefix]
		switch {
		case d == nil || d.best == nil && d.standby == nil:
			continue
		case d.best == nil:
			return prefix, p.exits[d.standbyExit].Name
		}
		for i, a := range d.exits {
			if sameWay(a, d.best) {
				return prefix, p.exits[i].Name
			}
		}
		return prefix, ""
	}
	return netip.Prefix{}, ""
}

// MainExit is the exit of Main.
func (p *Plan) MainExit(client netip.Addr) string {
	_, exit := p.Main(client)
	return exit
}

// SetAside takes the best path to a prefix out of the main table for as long as it leaves by this exit, if there is a standby to take its place. It returns what
// that changes.
func (p *Plan) SetAside(prefix netip.Prefix, exit string) []Change {
	i := slices.IndexFunc(p.exits, func(e Exit) bool { return e.Name == exit })
	d := p.destinations[prefix]
	if i < 0 || d == nil || d.best == nil { // none, or aside already
		return nil
	}
	p.aside[prefix] = i
	changes := p.renew(prefix)
	if len(changes) == 0 {
		delete(p.aside, prefix)
	}
	return changes
}

// Restore puts the best path to a prefix back.
func (p *Plan) Restore(prefix netip.Prefix) []Change {
	delete(p.aside, prefix)
	if p.destinations[prefix] == nil {
		return nil
	}
	return p.renew(prefix)
}

// Reachable returns the exits through which packets for the client can leave, best first. An exit that is not there announces no prefix with the
// client's address.
func (p *Plan) Reachable(client netip.Addr) []Way {
	client = client.Unmap()
	var order []candidate
	longest := map[int]netip.Prefix{}
	for length := client.BitLen(); length >= 0; length-- {
		prefix, err := client.Prefix(length)
		if err != nil || p.lengths[client.Is4()][length] == 0 || p.destinations[prefix] == nil {
			continue
		}
		var here []candidate
		for i, a := range p.destinations[prefix].exits {
			if _, found := longest[i]; !found && a != nil {
				longest[i] = prefix
				here = append(here, candidate{attributes: a, exit: i})
			}
		}
		for ; len(here) > 0; here = here[1:] {
			decide(here) // the best comes first; the others' order is open
			order = append(order, here[0])
		}
	}
	ways := make([]Way, len(order))
	for i, c := range order {
		ways[i] = Way{p.exits[c.exit].Name, longest[c.exit], c.route(), "the only exit that announces it"}
		if i > 0 {
			ways[i].Reason = "the last that announces it"
		}
		if i+1 == len(order) {
			break
		}
		next := order[i+1]
		if mine, its := longest[c.exit].Bits(), longest[next.exit].Bits(); mine != its {
			ways[i].Reason = fmt.Sprintf("prefix of /%d before /%d", mine, its)
		} else {
			ways[i].Reason = reason(&c, &next)
		}
	}
	return ways
}
