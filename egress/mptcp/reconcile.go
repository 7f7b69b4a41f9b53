package mptcp

import (
	"errors"
	"net/netip"
	"slices"
	"time"
)

// addr is the address of this host, comparable.
func (s Subflow) addr() netip.Addr { return s.Local.Addr().Unmap() }

// wanted is what Reachable says for a connection: exits of its family, each once, at most as many as subflows are allowed beside the first; the
// connection's own address, if it is mentioned, does not count.
func (m *Manager) wanted(c *connection) []ExitAddress {
	m.want = m.want[:0]
	exits := 0
	peer := c.Peer
	peer.Offered = len(c.announced) > 0
	for _, x := range m.config.Reachable(peer) {
		x.Addr = x.Addr.Unmap()
		_, known := m.ids[x.Addr]
		own := x.Addr == c.Own.Addr()
		if x.Addr.Is4() != c.Client.Is4() || !known && !own || find(m.want, x.Addr) != nil {
			continue
		}
		if x.Same && !own && c.has(c.Own.Addr()) {
			if !c.has(x.Addr) {
				continue
			}
			x.Backup = true
		}
		if !own {
			if exits++; exits >= m.config.MaxSubflows {
				continue
			}
		}
		m.want = append(m.want, x)
	}
	if own := find(m.want, c.Own.Addr()); own != nil && own.Backup && !slices.ContainsFunc(c.subflows, func(s Subflow) bool {
		x := find(m.want, s.addr())
		return x != nil && !x.Backup
	}) {
		own.Backup = false // those that are to carry have no subflow yet, or never will: all backups would be used alike
	}
	return m.want
}

// has says whether it has a subflow on an address of this host.
func (c *connection) has(a netip.Addr) bool {
	return slices.ContainsFunc(c.subflows, func(s Subflow) bool { return s.addr() == a })
}

func find(want []ExitAddress, a netip.Addr) *ExitAddress {
	for i := range want {
		if want[i].Addr == a {
			return &want[i]
		}
	}
	return nil
}

// closeWhere closes subflows, but never the last one, even if its exit no longer leads to the client: without it the connection would be lost.
func (m *Manager) closeWhere(c *connection, unwanted func(i int, s Subflow) bool) {
	for i := len(c.subflows) - 1; i >= 0 && c.ready; i-- {
		s := c.subflows[i]
		if len(c.subflows) > 1 && unwanted(i, s) && m.done(c, &m.counts.Destroys, Deed{Destroyed, s.addr(), ""}, m.kernel.Destroy(c.Token, s)) {
			m.went(c, i)
		}
	}
}

// withdraw sends RM_ADDR for announced addresses whose exit does not reach the client, and closes the subflows on them. Remove
// comes before Destroy, which makes the kernel forget the id. A first subflow that is to be avoided is closed before all that: RM_ADDR would go by it.
func (m *Manager) withdraw(c *connection, want []ExitAddress) {
	if own := find(want, c.Own.Addr()); own != nil && own.Avoid {
		m.closeWhere(c, func(_ int, s Subflow) bool {
			return s.addr() == c.Own.Addr() && slices.ContainsFunc(c.subflows, func(x Subflow) bool { return x.addr() != c.Own.Addr() && find(want, x.addr()) != nil })
		})
	}
	c.announced = slices.DeleteFunc(c.announced, func(a announcement) bool {
		if !c.ready || find(want, a.addr) != nil {
			return false
		}
		return a.refused || m.done(c, &m.counts.Removes, Deed{Removed, a.addr, ""}, m.kernel.Remove(c.Token, a.id))
	})
	m.closeWhere(c, func(i int, s Subflow) bool {
		_, exit := m.ids[s.addr()]
		excess := len(c.subflows) > m.config.MaxSubflows && i > 0
		return exit && s.addr() != c.Own.Addr() && find(want, s.addr()) == nil || excess
	})
}

// prioritize sends MP_PRIO where a subflow's priority is not the wanted one.
func (m *Manager) prioritize(c *connection, want []ExitAddress) {
	for i := range c.subflows {
		s := &c.subflows[i]
		x := find(want, s.addr())
		if x == nil || x.Backup == s.Backup && !s.unsure || !c.ready {
			continue
		}
		command := UnsetBackup
		if x.Backup {
			command = SetBackup
		}
		m.done(c, &m.counts.Priorities, Deed{command, s.addr(), ""}, m.kernel.SetBackup(c.Token, *s, x.Backup))
		s.Backup, s.unsure = x.Backup, false
		if a := c.announcement(s.addr()); a != nil {
			a.backup = true
		}
	}
}

// announce sends ADD_ADDR for what is wanted and not announced.
func (m *Manager) announce(c *connection, want []ExitAddress, now time.Time) {
	for _, x := range want {
		if x.Addr == c.Own.Addr() || !c.ready || c.announcement(x.Addr) != nil || slices.Contains(c.resting, x.Addr) {
			continue
		}
		a := announcement{addr: x.Addr, id: c.idOf(x.Addr, m.ids[x.Addr])}
		a.refused = !m.done(c, &m.counts.Announces, Deed{Announced, a.addr, "it reaches the client"}, m.kernel.Announce(c.Token, a.addr, a.id))
		c.announced = append(c.announced, a)
		if !a.refused {
			m.repeats[0] = append(m.repeats[0], later{now.Add(repeatAfter[0]), c.Token, a.addr, false})
		}
	}
}

// idOf is the id the connection has for the address, if one of its subflows shows it, else the usual.
func (c *connection) idOf(a netip.Addr, usual uint8) uint8 {
	for _, s := range c.subflows {
		if s.LocalID != 0 && s.addr() == a {
			return s.LocalID
		}
	}
	return usual
}

// done notes a command and what the kernel said to it. It returns whether things are now as the command wanted them. A deed without a reason has that of Why.
func (m *Manager) done(c *connection, count *uint64, d Deed, err error) bool {
	m.budget.take()
	switch {
	case err == nil:
		*count++
		if d.Why == "" {
			d.Why = m.config.Why(c.Peer, d.Addr) // asked for when what it is for has happened
		}
		m.did(d, c.Client)
	case errors.Is(err, ErrGone):
		m.counts.Gone++
	case errors.Is(err, ErrNotOurs):
		m.counts.NotOurs++
		c.ready = false
		return false
	default:
		if m.counts.Refused++; m.counts.Refused%1000 == 1 {
			m.config.Log.Warn("the kernel refused a change of an MPTCP connection (logged once in 1000)",
				"client", c.Client, "token", c.Token, "err", err)
		}
		return false
	}
	return true
}

// patience says which of repeatAfter an address stays withdrawn. A middlebox may reset every subflow to it: one that was there for less than half of the time since the renewal before is waited for longer.
func (c *connection) patience(addr netip.Addr, level int, now time.Time) int {
	if level == renewSoon { // the Manager has closed it
		return level
	}
	i := slices.IndexFunc(c.renewed, func(r renewal) bool { return r.addr == addr })
	if i < 0 {
		i, c.renewed = len(c.renewed), append(c.renewed, renewal{addr: addr})
	} else if before := c.renewed[i]; now.Sub(before.at) < 2*repeatAfter[before.level] {
		level = max(level, min(before.level+1, renewLast))
	}
	c.renewed[i].at, c.renewed[i].level = now, level
	return level
}

// renew withdraws an address whose subflow died, so that it is announced again later: while an address counts as
// announced, Linux clients do not join there a second time.
func (m *Manager) renew(c *connection, addr netip.Addr, level int, now time.Time) {
	if a := c.announcement(addr); a == nil || !c.ready || !m.done(c, &m.counts.Removes, Deed{Removed, addr, "its subflow is lost: it is announced again"}, m.kernel.Remove(c.Token, a.id)) {
		return
	}
	c.announced = slices.DeleteFunc(c.announced, func(a announcement) bool { return a.addr == addr })
	c.resting = append(c.resting, addr)
	level = c.patience(addr, level, now)
	m.repeats[level] = append(m.repeats[level], later{now.Add(repeatAfter[level]), c.Token, addr, true})
}

// repeat announces again what brought no subflow, or lost it.
func (m *Manager) repeat(now time.Time) {
	for level := range m.repeats {
		for len(m.repeats[level]) > 0 && !m.repeats[level][0].at.After(now) && m.budget.left(now) {
			r := m.repeats[level][0]
			m.repeats[level] = m.repeats[level][1:]
			c := m.byToken[r.token]
			if c == nil || !c.ready || c.closing {
				continue
			}
			if r.renew {
				c.resting = slices.DeleteFunc(c.resting, func(a netip.Addr) bool { return a == r.addr })
				m.reconcile(c, deferred, now) // if it is still wanted
				continue
			}
			a := c.announcement(r.addr)
			if a != nil && c.has(a.addr) { // the event was lost, or came while the address was withdrawn
				a.joined = true
			}
			if a == nil || a.joined || a.refused {
				continue
			}
			m.done(c, &m.counts.Repeats, Deed{Announced, a.addr, "the client opened no subflow to it yet"}, m.kernel.Announce(c.Token, a.addr, a.id))
			if level+1 < renewLast {
				m.repeats[level+1] = append(m.repeats[level+1], later{now.Add(repeatAfter[level+1]), r.token, r.addr, false})
			}
		}
	}
}

// reconcile brings one connection to what Reachable says, now or when the budget has room again, as urgently as u says then.
func (m *Manager) reconcile(c *connection, u urgency, now time.Time) {
	if !c.ready {
		return
	}
	if len(c.dropping) > 0 && m.budget.left(now) {
		m.drop(c, now)
	}
	want := m.wanted(c)
	if !m.budget.left(now) {
		m.counts.Deferred++
		m.enqueue(c, u)
		return
	}
	m.withdraw(c, want)
	if c.closing {
		return
	}
	m.prioritize(c, want)
	m.announce(c, want, now)
}
