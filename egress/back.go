package egress

import (
	"net/netip"
	"slices"
)

// leadsBack says whether the main table has nothing but an entry for the prefix, or a shorter one, to lead packets to the SID: a standby there would put into IPv6 again
// what it has put into IPv6, until the kernel drops it.
func (p *Plan) leadsBack(prefix netip.Prefix, sid netip.Addr) bool {
	if !prefix.Contains(sid) {
		return false
	}
	for length := prefix.Bits() + 1; length <= sid.BitLen(); length++ {
		longer, err := sid.Prefix(length)
		if err == nil && p.lengths[false][length] > 0 && p.destinations[longer] != nil && p.destinations[longer].best != nil {
			return false
		}
	}
	return true
}

// around adds to prefixes that may lead to SIDs those around them: whether a standby there leads back hangs on them.
func (p *Plan) around(prefixes []netip.Prefix) []netip.Prefix {
	added := map[netip.Prefix]bool{}
	for _, prefix := range prefixes {
		if !slices.ContainsFunc(p.exits, func(e Exit) bool { return e.isBehind(prefix) }) {
			continue
		}
		for length := range prefix.Bits() {
			shorter, err := prefix.Addr().Prefix(length)
			if err == nil && p.destinations[shorter] != nil && !added[shorter] {
				added[shorter] = true
				prefixes = append(prefixes, shorter)
			}
		}
	}
	return prefixes
}

// isBehind says whether one of the exit's SIDs may be in the prefix.
func (e *Exit) isBehind(prefix netip.Prefix) bool {
	return slices.ContainsFunc(e.SIDs, prefix.Contains) || slices.ContainsFunc(e.Locators, prefix.Overlaps)
}
