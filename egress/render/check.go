package render

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Lengths of a locator. FRR takes its last 24 bits for the router's own and what is before them for the block (RFC 9252, SID structure); 16 bits for the function follow.
const (
	minLocatorBits = 40
	maxLocatorBits = 80
)

// Names that get into a directory, a shell script and FRR's configuration: of routers and of interfaces.
var (
	name      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)
	interFace = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)
)

// Check says what is wrong with the network as a whole, apart from its border routers.
func (n Network) Check() error {
	for _, e := range n.Exits {
		for _, a := range e.Addresses {
			if !slices.ContainsFunc(append(n.announcedBy(e.Name), n.Announce...), func(p netip.Prefix) bool { return p.Contains(a) }) {
				return fmt.Errorf("announce: no prefix has %v of exit %q: answers to it would never come; expected one that has, for all exits or for this one", a, e.Name)
			}
		}
	}
	for _, r := range n.Reflectors {
		switch {
		case !name.MatchString(r.Name):
			return fmt.Errorf("reflectors: name %q: expected letters, digits, dots and dashes, at most 32", r.Name)
		case r.Address.Is4():
			return fmt.Errorf("reflectors: address %v: border routers connect to it from their IPv6 addresses; expected an IPv6 address", r.Address)
		case r.RouterID.IsValid() && len(n.Servers) == 0:
			return errors.New("no servers: expected the networks content servers come to the reflectors from")
		}
	}
	for i, p := range n.Announce {
		if slices.Contains(n.Announce[:i], p) {
			return fmt.Errorf("announce: %v is there twice: expected it once", p)
		}
	}
	return n.checkTwice()
}

// announcedBy are the prefixes that an exit alone announces.
func (n Network) announcedBy(exit string) (out []netip.Prefix) {
	for _, p := range n.peers() {
		if p.Exit == exit {
			out = append(out, p.Announce...)
		}
	}
	return out
}

// checkTwice looks for what two routers have.
func (n Network) checkTwice() error {
	taken := map[string]string{}
	take := func(owner string, what ...string) error {
		for _, w := range what {
			if other, is := taken[w]; is {
				return fmt.Errorf("%s: %s is of %s already", owner, w, other)
			}
			taken[w] = owner
		}
		return nil
	}
	for _, r := range n.Reflectors {
		what := []string{"name " + r.Name, "address " + r.Address.String()}
		if r.RouterID.IsValid() {
			what = append(what, "router_id "+r.RouterID.String())
		}
		if err := take("reflector "+r.Name, what...); err != nil {
			return err
		}
	}
	for _, b := range n.BorderRouters {
		if err := take("border router "+b.Name, "name "+b.Name, "address "+b.Address.String(), "router_id "+b.RouterID.String()); err != nil {
			return err
		}
	}
	for i, b := range n.BorderRouters {
		for _, o := range n.BorderRouters[:i] {
			if o.Locator.Overlaps(b.Locator) {
				return fmt.Errorf("border router %s: its locator %v overlaps with %v of %s", b.Name, b.Locator, o.Locator, o.Name)
			}
		}
	}
	return nil
}

// CheckRouter says what is wrong with a border router, apart from its peers.
func (n Network) CheckRouter(b BorderRouter) error {
	switch bits := b.Locator.Bits(); {
	case !b.RouterID.IsValid() || !b.Address.IsValid() || !b.Locator.IsValid():
		return errors.New("no router_id, address or locator: expected all three")
	case !name.MatchString(b.Name):
		return fmt.Errorf("name %q: expected letters, digits, dots and dashes, at most 32", b.Name)
	case !interFace.MatchString(b.Interface):
		return fmt.Errorf("interface %q: expected letters, digits, dots and dashes, at most 15", b.Interface)
	case bits < minLocatorBits || bits > maxLocatorBits:
		return fmt.Errorf("locator %v: expected %d to %d bits", b.Locator, minLocatorBits, maxLocatorBits)
	case len(b.Peers) == 0:
		return errors.New("no exits: expected one at least")
	}
	families := map[bool]bool{}
	for _, g := range b.Gateways {
		if families[g.Is4()] {
			return fmt.Errorf("gateways: %v is the second of its family: expected one", g)
		}
		families[g.Is4()] = true
	}
	return nil
}

// CheckPeer says what is wrong with peer i of a border router.
func (n Network) CheckPeer(b BorderRouter, i int) error {
	p := b.Peers[i]
	of := n.exit(p.Exit)
	if of < 0 {
		return fmt.Errorf("name %s: expected the name of one of the exits", p.Exit)
	}
	covers := func(l netip.Prefix) bool { return l.Bits() <= b.Locator.Bits() && l.Contains(b.Locator.Addr()) }
	switch e := n.Exits[of]; {
	case p.AS == n.AS:
		return fmt.Errorf("as %d: it is this network's own; expected a neighbour's", p.AS)
	case e.RouteTarget == "":
		return fmt.Errorf("exit %s is known by its SIDs; border routers get a VRF for each route target: expected route_target and locators", p.Exit)
	case !slices.ContainsFunc(e.Locators, covers):
		return fmt.Errorf("exit %s has no locator with %v of border router %s: servers would refuse its SIDs; expected it among the exit's locators", p.Exit, b.Locator, b.Name)
	case strings.ContainsFunc(p.Exit, unicode.IsControl):
		return fmt.Errorf("exit %q: expected a name without control characters", p.Exit)
	case !interFace.MatchString(p.Interface):
		return fmt.Errorf("interface %q: expected letters, digits, dots and dashes, at most 15", p.Interface)
	case len(p.Addresses) == 0 || p.AS == 0:
		return errors.New("no as or no addresses: expected the neighbour's")
	case p.Interface == b.Interface:
		return fmt.Errorf("interface %s: it leads into the network; expected one of the exit's own", p.Interface)
	}
	for _, o := range b.Peers[:i] {
		if o.Exit == p.Exit || o.Interface == p.Interface {
			return fmt.Errorf("exit %s, interface %s: %s on %s has one of them already; expected a VRF and an interface for each", p.Exit, p.Interface, o.Exit, o.Interface)
		}
	}
	for _, a := range p.Announce {
		if slices.Contains(n.Announce, a) {
			return fmt.Errorf("announce: %v: all exits announce it; expected a prefix of this exit's own", a)
		}
		if !slices.ContainsFunc(p.Addresses, func(q netip.Addr) bool { return q.Is4() == a.Addr().Is4() }) {
			return fmt.Errorf("announce: %v: the neighbour has no address of its family, so nobody would be told; expected one", a)
		}
		for _, o := range n.peers() {
			if o.Exit != p.Exit && slices.Contains(o.Announce, a) {
				return fmt.Errorf("announce: %v: exit %s announces it as well; expected a prefix of this exit's own", a, o.Exit)
			}
		}
	}
	for i, a := range p.Addresses {
		if a == b.Address || slices.Contains(p.Addresses[:i], a) {
			return fmt.Errorf("address %v: it is the router's own, or there twice: expected the neighbour's, each once", a)
		}
		if !slices.ContainsFunc(append(slices.Clone(p.Announce), n.Announce...), func(q netip.Prefix) bool { return q.Addr().Is4() == a.Is4() }) {
			return fmt.Errorf("address %v: announce has no prefix of its family, so the peer would be told nothing; expected one", a)
		}
	}
	return nil
}
