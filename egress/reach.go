package egress

import (
	"fmt"
	"net/netip"
)

// Way is an exit that announces a client's address.
type Way struct {
	Exit   string
	Prefix netip.Prefix // the longest the exit announces of those the client is in
	Route  Route        // the best for it, without route targets
	// Reason says why it stands where it stands, as BGP would order: before what comes next, or for the last one, why it is here.
	Reason string
}

// MainExit is the exit that the main table's best path to the client leaves through; empty if there is none, or none of the plan's.
func (p *Plan) MainExit(client netip.Addr) string {
	client = client.Unmap()
	for length := client.BitLen(); length >= 0; length-- {
		prefix, err := client.Prefix(length)
		if err != nil || p.lengths[client.Is4()][length] == 0 {
			continue
		}
		d := p.destinations[prefix]
		if d == nil || d.best == nil {
			continue
		}
		for i, a := range d.exits {
			if a != nil && sameWay(a, d.best) {
				return p.exits[i].Name
			}
		}
		return ""
	}
	return ""
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
