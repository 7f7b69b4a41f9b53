package bgp

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"weak"

	"plait.dev/plait/egress"
)

// interner makes equal routes one: a full table has far fewer distinct sets of attributes than prefixes, and reflectors tell the
// same ones. It holds them weakly, so that it keeps nothing alive.
type interner struct {
	mu             sync.Mutex
	seed           maphash.Seed
	routes         map[uint64]weak.Pointer[egress.Route]
	sweepAt        int // entries; the next sweep of the dead
	targets        map[string][]string
	targetBytes    int // of the keys
	distinguishers map[[8]byte]string
}

// What is small is kept for good, up to so many entries: a network has some hundred route targets. Lists of them need not be small: up to so many bytes on the wire,
// of which each takes four or five here.
const (
	internSmall = 1 << 16
	internBytes = 4 << 20
)

func newInterner() *interner {
	return &interner{
		seed: maphash.MakeSeed(), sweepAt: 1024,
		routes:  map[uint64]weak.Pointer[egress.Route]{},
		targets: map[string][]string{}, distinguishers: map[[8]byte]string{},
	}
}

// route returns a route equal to r that may be shared.
func (n *interner) route(r *egress.Route) *egress.Route {
	n.mu.Lock()
	defer n.mu.Unlock()
	hash := n.hash(r)
	if known := n.routes[hash].Value(); known != nil && equal(known, r) {
		return known
	}
	if len(n.routes) >= n.sweepAt {
		for h, p := range n.routes {
			if p.Value() == nil {
				delete(n.routes, h)
			}
		}
		n.sweepAt = 2*len(n.routes) + 1024
	}
	n.routes[hash] = weak.Make(r)
	return r
}

func (n *interner) hash(r *egress.Route) uint64 {
	var h maphash.Hash
	h.SetSeed(n.seed)
	for _, a := range [...][16]byte{r.SID.As16(), r.NextHop.As16(), r.RouterID.As16()} {
		_, _ = h.Write(a[:])
	}
	var buf [4]byte
	for _, v := range [...]uint32{r.LocalPref, r.MED, uint32(r.Origin)} {
		binary.BigEndian.PutUint32(buf[:], v)
		_, _ = h.Write(buf[:])
	}
	for _, as := range r.ASPath {
		binary.BigEndian.PutUint32(buf[:], as)
		_, _ = h.Write(buf[:])
	}
	for _, t := range r.RouteTargets {
		_, _ = h.WriteString(t)
	}
	return h.Sum64()
}

func equal(a, b *egress.Route) bool {
	return a.SID == b.SID && a.NextHop == b.NextHop && a.RouterID == b.RouterID && a.LocalPref == b.LocalPref && a.MED == b.MED &&
		a.Origin == b.Origin && slices.Equal(a.ASPath, b.ASPath) && slices.Equal(a.RouteTargets, b.RouteTargets)
}

// routeTargets returns the list for its encoding; spell writes it out if it is new.
func (n *interner) routeTargets(encoded []byte, spell func() []string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list, ok := n.targets[string(encoded)]
	if !ok {
		if n.targetBytes += len(encoded); len(n.targets) >= internSmall || n.targetBytes > internBytes {
			clear(n.targets)
			n.targetBytes = len(encoded)
		}
		list = spell()
		n.targets[string(encoded)] = list
	}
	return list
}

// distinguisher returns the words for a route distinguisher.
func (n *interner) distinguisher(rd [8]byte) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	words, ok := n.distinguishers[rd]
	if !ok {
		if len(n.distinguishers) >= internSmall {
			clear(n.distinguishers)
		}
		words = distinguisherWords(rd)
		n.distinguishers[rd] = words
	}
	return words
}
