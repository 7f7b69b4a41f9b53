package daemon

import (
	"errors"
	"os"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// groupFor is how long a connection without transfers keeps its group at least, and twice that at most.
const groupFor = 30 * time.Minute

// groups are the connections that are compared, by token, in two generations: those used since the younger one began, and those used in the one before. At 1,000 new connections a second
// there are millions, and nobody can wait for all to be gone through.
type groups struct {
	young, old map[uint32]egress.Member
	began      time.Time // the younger generation
}

func (g *groups) of(token uint32) (m egress.Member, is bool) {
	if m, is = g.young[token]; !is {
		m, is = g.old[token]
	}
	return m, is
}

// put says which group a connection is in now. What it brought to the other one is not forgotten: it is still one.
func (g *groups) put(token uint32, m egress.Member, heldOut bool) {
	m.HeldOut = heldOut
	g.young[token] = m
}

func (g *groups) leave(token uint32) {
	delete(g.young, token)
	delete(g.old, token)
}

// forget drops connections of which nothing was heard for long.
func (g *groups) forget(now time.Time) {
	if now.Sub(g.began) >= groupFor {
		g.old, g.young, g.began = g.young, map[uint32]egress.Member{}, now
	}
}

// heldOut says whether a connection is left on the best path alone, to compare with. Tokens are hashes of random keys (RFC 8684 section 3.2).
func heldOut(token uint32, percent float64) bool { return float64(token%10_000) < 100*percent }

// group decides whether a connection is compared, and on which side. The caller has x.mu.
func (x *exits) group(p mptcp.Peer, out, alone bool) {
	before, _ := x.groups.of(p.Token)
	switch {
	case out && alone:
		x.groups.put(p.Token, before, true)
	case out || alone || x.moved || len(x.full) > 0 || x.outages.Any(): // what it gets is neither the strategy nor the best path by lot
		x.groups.leave(p.Token)
	default:
		x.groups.put(p.Token, before, false)
	}
}

// transfer takes in how long an MPTCP connection took for something, if it belongs to one of the groups that are compared, also while a trial leaves out one of its exits: that is what plait
// costs the client.
func (x *exits) transfer(t flowTransfer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	client, now := t.ends.Remote.Addr(), time.Now()
	group, is := x.groups.of(t.token)
	ways := x.plan.Reachable(client)
	if !is || len(ways) < 2 { // there is nothing to choose
		return
	}
	service := x.services.of(mptcp.Peer{Token: t.token, Client: client, Own: t.ends.Local})
	x.worth.Transfer(t.token, &group, ways[0].Prefix, service.Strategy, t.bytes, t.us, now)
	x.groups.put(t.token, group, group.HeldOut)
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
