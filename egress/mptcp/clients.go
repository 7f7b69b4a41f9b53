package mptcp

import (
	"net/netip"
	"slices"
	"time"
)

// came notes an address the connection's client comes from.
func (m *Manager) came(c *connection, from netip.Addr) {
	if m.from[from] == nil {
		m.from[from] = map[*connection]bool{}
	}
	if !m.from[from][c] {
		m.from[from][c] = true
		c.from = append(c.from, from)
	}
}

// went takes a subflow from the connection, and forgets the address it came from if no other did: a client can have ever new ones.
func (m *Manager) went(c *connection, i int) {
	from := c.subflows[i].Remote.Addr().Unmap()
	c.subflows = slices.Delete(c.subflows, i, i+1)
	if from == c.Client || slices.ContainsFunc(c.subflows, func(s Subflow) bool { return s.Remote.Addr().Unmap() == from }) {
		return
	}
	if delete(m.from[from], c); len(m.from[from]) == 0 {
		delete(m.from, from)
	}
	c.from = slices.DeleteFunc(c.from, func(a netip.Addr) bool { return a == from })
}

// leave forgets the connection.
func (m *Manager) leave(c *connection) {
	delete(m.byToken, c.Token)
	for _, a := range c.from {
		if delete(m.from[a], c); len(m.from[a]) == 0 {
			delete(m.from, a)
		}
	}
}

// having returns the connections that have one of some subflows.
func (m *Manager) having(some map[Ends]bool) map[*connection]bool {
	out := map[*connection]bool{}
	for e := range some {
		for c := range m.from[e.Remote.Addr()] {
			if c.hasEnds(e) {
				out[c] = true
			}
		}
	}
	return out
}

// Group is the subflows of one connection to its client's first address.
type Group struct {
	Client   netip.Addr
	Subflows []Subflow
}

// Around returns the group of each connection that has one of these subflows.
func (m *Manager) Around(some map[Ends]bool) (out []Group) {
	for c := range m.having(some) {
		if !c.ready || c.closing {
			continue
		}
		out = append(out, Group{c.Client, slices.DeleteFunc(slices.Clone(c.subflows), func(s Subflow) bool { return s.Remote.Addr().Unmap() != c.Client })})
	}
	return out
}

// Flows returns subflows of a client's connections, to its first address, not many more than most.
func (m *Manager) Flows(client netip.Addr, most int) (out []Subflow) {
	for c := range m.from[client] {
		if len(out) >= most {
			break
		}
		for _, s := range c.subflows {
			if c.Client == client && s.Remote.Addr().Unmap() == client {
				out = append(out, s)
			}
		}
	}
	return out
}

// Act does at once what is to be done for the connections of clients whose exits changed.
func (m *Manager) Act(clients map[netip.Addr]bool, now time.Time) {
	for client := range clients {
		for c := range m.from[client] {
			if c.Client == client {
				m.reconcile(c, failed, now)
			}
		}
	}
}

// Present says whether a client has connections.
func (m *Manager) Present(client netip.Addr) bool {
	for c := range m.from[client] {
		if c.Client == client && !c.closing {
			return true
		}
	}
	return false
}

// Drop closes subflows that bring nothing to their client, if their connection has others, and lets the client open them anew, with another port. The one the
// connection began on does not come back. What the budget has no room for waits, before all else.
func (m *Manager) Drop(some map[Ends]bool, now time.Time) {
	for c := range m.having(some) {
		for _, s := range c.subflows {
			if some[s.Ends()] && !slices.Contains(c.dropping, s.Ends()) {
				c.dropping = append(c.dropping, s.Ends())
			}
		}
		if m.budget.left(now) {
			m.drop(c, now)
		} else {
			m.counts.Deferred++
			m.enqueue(c, failed)
		}
	}
}

// drop closes a connection's subflows that Drop was told of.
func (m *Manager) drop(c *connection, now time.Time) {
	dropping := c.dropping
	c.dropping = nil
	for i := len(c.subflows) - 1; i >= 0 && c.ready && len(c.subflows) > 1; i-- {
		s := c.subflows[i]
		if !slices.Contains(dropping, s.Ends()) {
			continue
		}
		if !slices.ContainsFunc(c.subflows, func(x Subflow) bool { return x != s && x.addr() == s.addr() }) { // RM_ADDR would close that one, too
			m.renew(c, s.addr(), renewSoon, now)
		}
		if m.done(c, &m.counts.Destroys, Deed{Destroyed, s.addr(), "nothing arrives on it, or others wait for what it has lost"}, m.kernel.Destroy(c.Token, s)) {
			m.went(c, i)
			m.enqueue(c, failed) // another address may stand in for the first one's
		}
	}
}
