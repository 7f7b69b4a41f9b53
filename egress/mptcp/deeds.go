package mptcp

import (
	"cmp"
	"net/netip"
	"slices"
)

// Command is what the kernel was told to do.
type Command uint8

// The commands, each with what it did.
const (
	Announced Command = iota // ADD_ADDR, also again
	Removed                  // RM_ADDR
	Destroyed                // a subflow
	SetBackup                // MP_PRIO
	UnsetBackup
)

// Deed is a change of connections that the kernel has made.
type Deed struct {
	Command Command
	// Addr is the address of this host that it concerns.
	Addr netip.Addr
	// Why it was done.
	Why string
}

// named are how many clients of a deed are remembered.
const named = 3

// Extent is how often a deed was done, and for whom.
type Extent struct {
	Times int
	// Clients are the first ones, each once; More says that there were others.
	Clients []netip.Addr
	More    bool
}

// Done is a deed and how often it was done.
type Done struct {
	Deed
	Extent
}

// did notes a deed for a client.
func (m *Manager) did(d Deed, client netip.Addr) {
	e := m.deeds[d]
	if e == nil {
		e = &Extent{}
		m.deeds[d] = e
	}
	switch e.Times++; {
	case slices.Contains(e.Clients, client):
	case len(e.Clients) < named:
		e.Clients = append(e.Clients, client)
	default:
		e.More = true
	}
}

// Deeds returns what was done since the last call, alike put together, in an order that does not depend on when.
func (m *Manager) Deeds() []Done {
	out := make([]Done, 0, len(m.deeds))
	for d, e := range m.deeds {
		out = append(out, Done{d, *e})
	}
	clear(m.deeds)
	slices.SortFunc(out, func(a, b Done) int {
		return cmp.Or(cmp.Compare(a.Command, b.Command), a.Addr.Compare(b.Addr), cmp.Compare(a.Why, b.Why))
	})
	return out
}
