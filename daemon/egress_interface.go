package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// checkInterface says whether the host has what the section egress names of it. plait comes up without either, for they may come later, but its exits carry nothing until then.
func checkInterface(x Egress) []Check {
	const name = "exits' interface"
	if !x.there() {
		return nil
	}
	var checks []Check
	if told := x.unplugged(); told != "" {
		checks = append(checks, Check{name, Warn, told, "correct interface in the section egress, unless it comes later"})
	}
	if here, err := net.InterfaceAddrs(); err == nil && !slices.ContainsFunc(here, func(a net.Addr) bool { return isAddress(a, x.Address) }) {
		checks = append(checks, Check{name, Warn, fmt.Sprintf("this host has no address %v, from which sessions with IPv6 reflectors and tunnels come", x.Address), "add it, or correct address in the section egress"})
	}
	if len(checks) == 0 {
		return []Check{{name, OK, fmt.Sprintf("%s is there, and so is %v", x.Interface, x.Address), ""}}
	}
	return checks
}

// isAddress says whether what Go tells of an interface, an address with its prefix, is of this address.
func isAddress(a net.Addr, address netip.Addr) bool {
	p, err := netip.ParsePrefix(a.String())
	return err == nil && p.Addr() == address
}
