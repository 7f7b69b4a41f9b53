package daemon

import (
	"errors"
	"os"
	"time"

	"plait.dev/plait/egress/mptcp"
)

// heldOut says whether a connection is left on the best path alone, to compare with. Tokens are hashes of random keys (RFC 8684 section 3.2).
func heldOut(token uint32, percent float64) bool { return float64(token%10_000) < 100*percent }

// group decides whether a connection is compared, and on which side. The caller has x.mu.
func (x *exits) group(p mptcp.Peer, out, alone bool) {
	switch {
	case p.Earlier: // a process before this one may have counted it, and it would count as another one for each
		x.worth.Leave(p.Token)
	case out && alone:
		x.worth.Join(p.Token, true)
	case out || alone || x.moved || len(x.full) > 0 || x.outages.Any(): // what it gets is neither the strategy nor the best path by lot
		x.worth.Leave(p.Token)
	default:
		x.worth.Join(p.Token, false)
	}
}

// transfer takes in how long an MPTCP connection took for something, if it belongs to one of the groups that are compared, also while a trial leaves out one of its exits: that is what plait
// costs the client.
func (x *exits) transfer(t flowTransfer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.moved || len(x.full) > 0 || x.outages.Any() { // nobody has all of the strategy now: those without it would have other hours to their name
		return
	}
	client, now := t.ends.Remote.Addr(), time.Now()
	ways := x.plan.Reachable(client)
	if !x.worth.Compares(t.token) || len(ways) < 2 { // there is nothing to choose
		return
	}
	service := x.services.of(mptcp.Peer{Token: t.token, Client: client, Own: t.ends.Local})
	x.worth.Transfer(t.token, ways[0].Prefix, service.Strategy, t.bytes, t.us, now)
}

// runTransfers takes in transfers until the kernel half is closed.
func (x *exits) runTransfers() error {
	for {
		t, err := x.flows.transferred()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		x.transfer(t)
	}
}
