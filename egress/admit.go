package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// maxExits is how many exits a plan can have: sets of them are the bits of a word, which has one left for what is none of them.
const maxExits = 63

// Reason says why a route is not used.
type Reason uint8

// The reasons, in the order they are looked for.
const (
	accepted       Reason = iota
	NotUnicast            // no packet of a host leaves its network for there: multicast, loopback, link-local, or no prefix at all
	NoNextHop             // a route of the default table needs one
	NoSID                 // a route of an exit needs one
	OutsideLocator        // the SID is in none of the exit's locators
	OthersSID             // the SID is one that another exit is known by
	TooManySIDs           // the exit's routes have as many SIDs as they may
)

func (r Reason) String() string {
	return [...]string{"accepted", "the prefix is no unicast destination", "no next hop", "no SID", "the SID is outside the exit's locators", "another exit is known by the SID", fmt.Sprintf("the exit has %d SIDs already", mostSIDs)}[r]
}

// Refusal counts the routes of an exit that reflectors tell of now and that are not used.
type Refusal struct {
	Exit   string // empty: the default table
	Reason Reason
	Routes int
	// The latest of them, for a message.
	Prefix netip.Prefix
	SID    netip.Addr
}

// attributes are a route without its key and without what only decides for which exits it counts. They are comparable, and routes with the same
// ones share them: a reflector tells of a million routes with some ten thousand different attributes.
type attributes struct {
	sid, nextHop, routerID netip.Addr
	localPref, med         uint32
	asPath                 string // 4 bytes each, first the neighbour
	origin                 uint8
	reason                 Reason
	main                   bool   // of the default table
	exits, refused         uint64 // bit i: exit i uses it; exit i would if there were no reason against
}

// length of the AS path.
func (a *attributes) length() int { return len(a.asPath) / 4 }

// neighbour is the AS the route was received from; 0: this one.
func (a *attributes) neighbour() uint32 {
	if a.asPath == "" {
		return 0
	}
	return binary.BigEndian.Uint32([]byte(a.asPath[:4]))
}

// route is what was told, without the route targets.
func (a *attributes) route() Route {
	r := Route{SID: a.sid, NextHop: a.nextHop, LocalPref: a.localPref, Origin: a.origin, MED: a.med, RouterID: a.routerID}
	for path := []byte(a.asPath); len(path) > 0; path = path[4:] {
		r.ASPath = append(r.ASPath, binary.BigEndian.Uint32(path))
	}
	return r
}

// usable says whether packets can leave the network for the prefix.
func usable(p netip.Prefix) bool {
	a := p.Addr()
	return p.IsValid() && !a.Is4In6() && !(p.Bits() >= 4 && a.IsMulticast()) && !(p.Bits() >= 8 && a.IsLoopback()) && !(p.Bits() >= 10 && a.IsLinkLocalUnicast())
}

// admit decides for which exits a route counts. A route that counts for nobody and is refused by nobody has another route target and is not kept.
func (p *Plan) admit(k Key, r *Route) attributes {
	path := make([]byte, 0, 64)
	for _, as := range r.ASPath {
		path = binary.BigEndian.AppendUint32(path, as)
	}
	a := attributes{sid: r.SID, nextHop: r.NextHop, routerID: r.RouterID, localPref: r.LocalPref, med: r.MED, asPath: string(path), origin: r.Origin}
	if k.Distinguisher == "" {
		a.main = true
		switch {
		case !usable(k.Prefix):
			a.reason = NotUnicast
		case !r.NextHop.IsValid() || r.NextHop.IsUnspecified():
			a.reason = NoNextHop
		}
		return a
	}
	for _, target := range r.RouteTargets {
		if i, known := p.byTarget[target]; known {
			a.exits |= 1 << i
		}
	}
	owner, owned := p.bySID[r.SID]
	if owned {
		a.exits |= 1 << owner
	}
	for set := a.exits; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		why := p.exits[i].refuses(k.Prefix, r.SID)
		if why == accepted && owned && i != owner {
			why = OthersSID
		}
		if why == accepted && !p.sids.room(i, r.SID) {
			why = TooManySIDs
		}
		if why != accepted {
			a.reason = why
			a.exits &^= 1 << i
			a.refused |= 1 << i
		}
	}
	return a
}

func (e *Exit) refuses(prefix netip.Prefix, sid netip.Addr) Reason {
	if !usable(prefix) {
		return NotUnicast
	}
	if !sid.IsValid() || sid.IsUnspecified() {
		return NoSID
	}
	if slices.Contains(e.SIDs, sid) || slices.ContainsFunc(e.Locators, func(l netip.Prefix) bool { return l.Contains(sid) }) {
		return accepted
	}
	return OutsideLocator
}

// CheckExits says what is wrong with the configured exits: what belongs to one must not belong to another.
func CheckExits(exits []Exit) error {
	if len(exits) > maxExits {
		return fmt.Errorf("plan %d exits: at most %d are possible", len(exits), maxExits)
	}
	taken := map[string]string{}
	for _, e := range exits {
		if err := e.check(taken); err != nil {
			return fmt.Errorf("plan exit %q: %w", e.Name, err)
		}
	}
	return nil
}

// check notes in taken what the exit has, to find what two exits have.
func (e *Exit) check(taken map[string]string) error {
	mine := []string{"name " + e.Name, fmt.Sprint("table ", e.Table)}
	switch {
	case e.Name == "":
		return errors.New("it needs a name")
	case e.RouteTarget == "" && len(e.SIDs) == 0:
		return errors.New("it needs a route target or SIDs, by which its routes are known")
	case len(e.SIDs) > 0 && (e.RouteTarget != "" || len(e.Locators) > 0):
		return errors.New("its routes are known by its SIDs: leave out route target and locators")
	case len(e.SIDs) == 0 && len(e.Locators) == 0:
		return errors.New("it has no locator, so every SID would be refused: give the SRv6 prefix of its border router")
	case len(e.SIDs) == 0:
		mine = append(mine, "route target "+e.RouteTarget)
	}
	if e.Table == 0 || e.Table >= 253 && e.Table <= 255 {
		return fmt.Errorf("table %d is the kernel's own: choose another number", e.Table)
	}
	for _, s := range e.SIDs {
		if !s.Is6() || s.Is4In6() || s.Zone() != "" || s.IsUnspecified() || s.IsMulticast() {
			return fmt.Errorf("SID %v is no IPv6 unicast address", s)
		}
		mine = append(mine, "SID "+s.String())
	}
	for _, l := range e.Locators {
		if !l.IsValid() || l.Addr().Is4() {
			return fmt.Errorf("locator %v is no IPv6 prefix", l)
		}
	}
	families := map[bool]bool{}
	for _, a := range e.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || !a.IsGlobalUnicast() {
			return fmt.Errorf("address %v is no IPv4 or IPv6 unicast address", a)
		}
		if families[a.Is4()] {
			return fmt.Errorf("address %v is the second of its family: one is possible", a)
		}
		families[a.Is4()] = true
		mine = append(mine, "address "+a.String())
	}
	for _, m := range mine {
		if other, is := taken[m]; is {
			return fmt.Errorf("%s belongs to exit %q already", m, other)
		}
		taken[m] = e.Name
	}
	return nil
}
