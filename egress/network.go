package egress

import (
	"cmp"
	"iter"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Network is the longest prefix with the client's address that an exit announces; invalid if none does.
func (p *Plan) Network(client netip.Addr) netip.Prefix {
	client = client.Unmap()
	for length := client.BitLen(); length >= 0; length-- {
		prefix, err := client.Prefix(length)
		if err == nil && p.lengths[client.Is4()][length] > 0 && p.destinations[prefix] != nil && len(p.destinations[prefix].exits) > 0 {
			return prefix
		}
	}
	return netip.Prefix{}
}

// NetworkTraffic is what the flows to clients of a network do that leave by an exit.
type NetworkTraffic struct {
	// Prefix as BGP has it; invalid: no exit announces any.
	Prefix netip.Prefix
	Exit   string // as in FlowCount
	// Flows that did something at the last look.
	Flows int
	// GoodputBps, LossPercent and RTTMs are as in ExitTraffic.
	GoodputBps, LossPercent, RTTMs float64
}

// networkBy is a network reached by an exit.
type networkBy struct {
	prefix netip.Prefix
	exit   string
}

type networkSums struct {
	sums
	flows int
}

// Networks adds up what flows do, by client network and exit. Any goroutine may ask.
type Networks struct {
	mu sync.Mutex
	by map[networkBy]*networkSums
}

// NewNetworks has seen nothing yet.
func NewNetworks() *Networks { return &Networks{by: map[networkBy]*networkSums{}} }

// faintest is what is left of a network's segments when it is forgotten: of a million that is after three and a half minutes.
const faintest = 0.1

// Look takes in what each flow did in the time since the last look. networkOf is [Plan.Network], mostly.
func (n *Networks) Look(did iter.Seq[FlowCount], networkOf func(netip.Addr) netip.Prefix, passed time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keep := math.Pow(0.1, passed.Seconds()/fade.Seconds())
	for k, s := range n.by {
		s.fade(keep, passed.Seconds())
		s.flows = 0
		if s.sent < faintest {
			delete(n.by, k)
		}
	}
	for f := range did {
		k := networkBy{networkOf(f.Client), f.Exit}
		s := n.by[k]
		if s == nil {
			s = &networkSums{sums: sums{seconds: passed.Seconds()}}
			n.by[k] = s
		}
		s.add(f)
		s.flows++
	}
}

// Busiest lists those with the highest goodput, at most so many.
func (n *Networks) Busiest(most int) []NetworkTraffic {
	n.mu.Lock()
	all := make([]NetworkTraffic, 0, len(n.by))
	for k, s := range n.by {
		one := NetworkTraffic{Prefix: k.prefix, Exit: k.exit, Flows: s.flows}
		one.GoodputBps, one.LossPercent, one.RTTMs = s.rates()
		all = append(all, one)
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b NetworkTraffic) int {
		return cmp.Or(cmp.Compare(b.GoodputBps, a.GoodputBps), a.Prefix.Compare(b.Prefix), cmp.Compare(a.Exit, b.Exit))
	})
	return all[:min(len(all), most)]
}
