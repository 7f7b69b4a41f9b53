package mptcp

import (
	"math"
	"net/netip"
	"time"
)

// Release has the connections of the calling thread's network namespace go on by the address they began on, before addresses of this host go: a subflow whose address is
// gone looks like one that loses everything, and what was sent on it would wait for retransmission timers. What has no other subflow stays as it is. Nobody else may
// manage the connections meanwhile.
func Release(addresses []netip.Addr) error {
	kernel, err := openCommands()
	if err != nil {
		return err
	}
	defer kernel.conn.Close()
	inv, err := takeInventory()
	if err != nil {
		return err
	}
	m, err := New(Config{Exits: addresses, Reachable: func(p Peer) []ExitAddress { return []ExitAddress{{Addr: p.Own.Addr()}} }, ChangesPerSecond: math.MaxInt32}, kernel)
	if err != nil {
		return err
	}
	now := time.Now()
	for m.Resync(inv.connections, now); m.waiting() > 0; {
		m.Tick(now)
	}
	return nil
}
