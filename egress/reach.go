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
		if i := d.leaves(); i != elsewhere {
			return prefix, p.exits[i].Name
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

// SetAside takes an exit out of the main table's way to a prefix for as long as packets would leave by it, as best path or as standby, if there is another that is
// not set aside. The empty name is that of an exit which is none of the plan's. It returns what that changes.
func (p *Plan) SetAside(prefix netip.Prefix, exit string) []Change {
	d, i := p.destinations[prefix], p.number(exit)
	if d == nil || d.best != nil && d.leaves() != i || d.best == nil && d.standbyExit != i {
		return nil
	}
	was := p.aside[prefix]
	p.aside[prefix] |= 1 << i
	changes := p.Renew([]netip.Prefix{prefix})
	if len(changes) == 0 && was>>i&1 == 0 { // one that is set aside already, as all are, stays so for when another comes back
		p.restore(prefix, i)
	}
	return changes
}

// number is an exit's in sets: elsewhere if it is none of the plan's.
func (p *Plan) number(exit string) int {
	if i := slices.IndexFunc(p.exits, func(e Exit) bool { return e.Name == exit }); i >= 0 {
		return i
	}
	return elsewhere
}

func (p *Plan) restore(prefix netip.Prefix, exit int) {
	if p.aside[prefix] &^= 1 << exit; p.aside[prefix] == 0 {
		delete(p.aside, prefix)
	}
}

// Restore takes back SetAside.
func (p *Plan) Restore(prefix netip.Prefix, exit string) []Change {
	p.restore(prefix, p.number(exit))
	return p.Renew([]netip.Prefix{prefix})
}

// SetOut says that an exit of the plan is out as a whole, or is no more. Until a prefix is renewed its entries stay as they are.
func (p *Plan) SetOut(exit string, out bool) {
	if p.out &^= 1 << p.number(exit); out {
		p.out |= 1 << p.number(exit)
	}
}

// Misplaced are the prefixes whose way by the main table may be another since exits went out or came back.
func (p *Plan) Misplaced() (prefixes []netip.Prefix) {
	for prefix, d := range p.destinations {
		out := d.best != nil && p.out != 0 && p.out>>d.leaves()&1 == 1 || d.best == nil && d.standby != nil && p.out>>d.standbyExit&1 == 1
		back := d.best == nil && slices.ContainsFunc(d.paths, func(x path) bool { return x.main && x.reason == accepted })
		if out || back {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// Renew makes the entries of prefixes anew and returns what that changes.
func (p *Plan) Renew(prefixes []netip.Prefix) []Change {
	return p.settle(slices.DeleteFunc(slices.Clone(prefixes), func(prefix netip.Prefix) bool { return p.destinations[prefix] == nil }))
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
