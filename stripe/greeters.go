package stripe

import (
	"net/netip"
	"sync"
)

// maxGreeting bounds connections that have not said who they are.
const maxGreeting = 256

// greeters are those connections. One origin may have as many as there is room left for others: 128, then 64, and so on. So whoever says nothing needs nine to keep everybody out, and with fewer leaves others some.
type greeters struct {
	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int
}

// translated are IPv4's addresses where IPv6 is all there is (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// origin is what one host, or one network's owner, has of addresses: with IPv6 a whole site's (RFC 6177).
func origin(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() && !translated.Contains(from) {
		bits = 48
	}
	p, _ := from.Prefix(bits)
	return p
}

// enter takes in one more from an address, who is to leave; false: there is no room.
func (g *greeters) enter(from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := origin(from)
	if g.of[at] >= maxGreeting-g.all {
		return false
	}
	if g.of == nil {
		g.of = map[netip.Prefix]int{}
	}
	g.of[at]++
	g.all++
	return true
}

func (g *greeters) leave(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := origin(from)
	g.all--
	if g.of[at]--; g.of[at] == 0 {
		delete(g.of, at)
	}
}

// count is how many there are.
func (g *greeters) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all
}
