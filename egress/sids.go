package egress

import (
	"math/bits"
	"net/netip"
)

// mostSIDs is how many SIDs an exit's routes may have at a time. A border router has one for each of its VRFs, or for each of its neighbours; the kernel gets an object
// for each, and is given a thousand of them in a second, but 10,000 in more than ten.
const mostSIDs = 1000

// sids counts the attributes that have each SID, by exit.
type sids []map[netip.Addr]int

// room says whether the exit may have routes to the SID.
func (s sids) room(exit int, sid netip.Addr) bool {
	return len(s[exit]) < mostSIDs || s[exit][sid] > 0
}

// count adds to the uses of the attributes' SID, or takes from them.
func (s sids) count(a *attributes, by int) {
	for set := a.exits; set != 0; set &= set - 1 {
		of := s[bits.TrailingZeros64(set)]
		if of[a.sid] += by; of[a.sid] == 0 {
			delete(of, a.sid)
		}
	}
}

// Counts are how many entries lead to each SID of an exit, by exit in the order they were configured, and how many are the main table's. Listing the
// entries for that would sort them.
func (p *Plan) Counts() (exits []map[netip.Addr]int, main, standby int) {
	exits = make([]map[netip.Addr]int, len(p.exits))
	for i := range exits {
		exits[i] = map[netip.Addr]int{}
	}
	for _, d := range p.destinations {
		for slot := range p.slots() {
			switch a, i := p.behind(d, slot), slot-len(p.exits); {
			case a == nil:
			case i < 0:
				exits[slot][a.sid]++
			case i == 0:
				main++
			default:
				standby++
			}
		}
	}
	return exits, main, standby
}
