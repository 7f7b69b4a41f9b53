package egress

import (
	"maps"
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

// tally counts the entries there are.
type tally struct {
	exits         []map[netip.Addr]int // by SID
	main, standby int
}

func newTally(exits int) tally {
	t := tally{exits: make([]map[netip.Addr]int, exits)}
	for i := range t.exits {
		t.exits[i] = map[netip.Addr]int{}
	}
	return t
}

// count adds to the entries of a slot that is made of such attributes, or takes from them.
func (t *tally) count(slot int, a *attributes, by int) {
	switch i := slot - len(t.exits); {
	case a == nil:
	case i < 0:
		if t.exits[slot][a.sid] += by; t.exits[slot][a.sid] == 0 {
			delete(t.exits[slot], a.sid)
		}
	case i == 0:
		t.main += by
	default:
		t.standby += by
	}
}

// Counts are how many entries lead to each SID of an exit, by exit in the order they were configured, and how many are the main table's. It takes no longer with more of them.
func (p *Plan) Counts() (exits []map[netip.Addr]int, main, standby int) {
	exits = make([]map[netip.Addr]int, len(p.exits))
	for i := range exits {
		exits[i] = maps.Clone(p.tally.exits[i])
	}
	return exits, p.tally.main, p.tally.standby
}
