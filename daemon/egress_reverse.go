package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/check"
)

// checkReversePath is about IPv4 packets to exits' addresses. The kernel looks up the way back to their source by the exit's rules, which end in unreachable where the exit does not announce it: a filter of any kind takes
// that for a forged source. settings is the kernel's directory of them.
func checkReversePath(x Egress, settings string) []Check {
	const name = "reverse path filter"
	if !x.there() || !slices.ContainsFunc(x.Exits, func(e egress.Exit) bool { return slices.ContainsFunc(e.Addresses, netip.Addr.Is4) }) {
		return nil
	}
	switch filter := check.ReversePathFilter(settings, x.Interface); filter {
	case "":
		return []Check{{name, Warn, "not readable", "mount /proc"}}
	case "0":
		return []Check{{name, OK, "rp_filter is 0 on " + x.Interface, ""}}
	default:
		return []Check{{name, Warn, fmt.Sprintf("rp_filter is %s on %s: IPv4 packets to an exit's address are dropped where the exit does not announce their source, such as what routers in IXPs' and peers' networks say of "+
			"packets that are too big for a link (fragmentation needed) or end on the way (time exceeded)", filter, x.Interface),
			"sysctl -w " + check.Unfiltered(x.Interface) + "; and to last, both as lines of a file in /etc/sysctl.d"}}
	}
}
