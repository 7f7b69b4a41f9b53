package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"plait.dev/plait/egress/route"
)

const reinstall = "plait puts it back within 10 seconds; if it is gone again, see plait egress log, and who else changes routes, rules or addresses on this host"

const doRules = "see ip -6 rule and ip rule: if plait's rules (priority 500 and 501) are there, a rule of somebody else's before them takes the packets of the exit's addresses; give that one a higher number, or leave these addresses out of it"

func tunnelSource(v *route.View, in Input) Result {
	now, err := v.TunnelSource()
	switch {
	case err != nil:
		return Result{Failed, "", "tunnel source", err.Error(), "run plait doctor"}
	case now != in.Address:
		return Result{Failed, "", "tunnel source", fmt.Sprintf("%v, not %v: border routers may drop what comes from there, and an exit's own address would loop", now, in.Address), reinstall}
	}
	return Result{OK, "", "tunnel source", now.String(), ""}
}

func rules(v *route.View, x Exit) Result {
	missing, err := v.Missing(x.Table, x.Addresses)
	switch {
	case err != nil:
		return Result{Unknown, x.Name, "rules", err.Error(), "run this as root"}
	case len(missing) > 0:
		return Result{Failed, x.Name, "rules", "missing: " + strings.Join(missing, "; "), reinstall}
	case len(x.Addresses) == 0:
		return Result{Unknown, x.Name, "rules", "it has no addresses, so no packets leave by it", "give it addresses in the configuration"}
	}
	return Result{OK, x.Name, "rules", fmt.Sprintf("lookup in table %d, unreachable behind it, addresses %v", x.Table, x.Addresses), ""}
}

func table(v *route.View, x Exit) Result {
	n, err := v.Count(x.Table)
	theirs, unread := v.Others(x.Table)
	switch err := cmp.Or(err, unread); {
	case err != nil:
		return Result{Unknown, x.Name, "table", err.Error(), "run this as root"}
	case theirs != "":
		return Result{Failed, x.Name, "table", fmt.Sprintf("table %d holds routes of others, as %s: packets of the exit's addresses are unreachable until they are gone", x.Table, theirs),
			fmt.Sprintf("see ip -6 route show table %d and ip route show table %[1]d: delete them, and have whoever makes them use another table", x.Table)}
	case n != x.Routes:
		return Result{Failed, x.Name, "table", fmt.Sprintf("the kernel has %d routes in table %d, the plan %d", n, x.Table, x.Routes), reinstall}
	}
	return Result{OK, x.Name, "table", fmt.Sprintf("%d routes in table %d, as planned", n, x.Table), ""}
}

// source is the exit's address of a family.
func (x Exit) source(of netip.Addr) (netip.Addr, bool) {
	for _, a := range x.Addresses {
		if a.Is4() == of.Is4() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// lookups reads a sample of routes back, as packets meet them.
func lookups(v *route.View, in Input, x Exit) Result {
	n, do := 0, reinstall
	var wrong []string
	for _, s := range x.Samples {
		to, usable := s.target()
		from, has := x.source(to)
		if !usable || !has {
			continue
		}
		n++
		way, err := v.Find(from, to)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("from %v: %v", from, err))
		case way.Table != x.Table || way.Interface != in.Interface || !way.SID.IsValid() || way.Prefix.Bits() == s.Prefix.Bits() && way.SID != s.SID:
			if way.Table != x.Table {
				do = doRules
			}
			wrong = append(wrong, fmt.Sprintf("from %v to %v: %v, the plan has %v to SID %v dev %s table %d", from, to, way, s.Prefix, s.SID, in.Interface, x.Table))
		}
	}
	switch {
	case len(wrong) > 0:
		return Result{Failed, x.Name, "lookup", strings.Join(wrong[:min(len(wrong), atMost)], "; "), do}
	case n == 0:
		return Result{Unknown, x.Name, "lookup", "there is no route to look up in a family of its addresses", ""}
	}
	return Result{OK, x.Name, "lookup", fmt.Sprintf("%d samples: the kernel sends packets of its addresses to the SID of the plan", n), ""}
}

// compare is everything about the kernel's state.
func compare(v *route.View, in Input) []Result {
	out := []Result{tunnelSource(v, in)}
	for _, x := range in.Exits {
		out = append(out, rules(v, x), table(v, x), lookups(v, in, x))
	}
	return out
}
