package daemon

import (
	"errors"
	"fmt"
	"slices"

	"plait.dev/plait/bpf"
)

// lasting is what a plait that is up cannot change; nothing where it has not got the lever.
func (x Egress) lasting() Egress {
	if !x.there() {
		return Egress{}
	}
	x = x.onServer()
	x.Service, x.Rules, x.MovedPercent = Service{}, nil, 0
	x.Exits = slices.Clone(x.Exits)
	for i := range x.Exits {
		x.Exits[i].Cost, x.Exits[i].CapMbps = 0, 0
	}
	return x
}

// reload puts in force what can change while plait is up. Connections that exist keep their subflows and get the roles the new services want. Those of a cgroup
// that no rule named when they began are known by port and prefix alone.
func (x *exits) reload(c *Egress) error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	x.choice.become(c)
	numbers := map[uint64]uint32{}
	for _, r := range c.Rules {
		for _, id := range r.Cgroups {
			numbers[id] = x.services.numbers[id]
		}
	}
	x.mu.Unlock()
	if x.mptcp != nil {
		x.mptcp.Changed()
	}
	if x.flows == nil {
		return nil
	}
	if err := x.flows.numberCgroups(numbers); err != nil {
		return fmt.Errorf("the configuration is in force, but new connections are not told apart by their cgroups: %w; run plait reload again", err)
	}
	return nil
}

// numberCgroups has the flows that begin told the numbers of their cgroups.
func (f *flows) numberCgroups(numbers map[uint64]uint32) error {
	f.reading.RLock() // the maps go when it is closed
	defer f.reading.RUnlock()
	if f.closed {
		return errors.New("plait goes down")
	}
	return replace(f.Maps[bpf.FlowsMapPlaitExitCgroups], numbers)
}
