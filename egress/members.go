package egress

import "time"

// memberFor is how long a connection without transfers keeps its group at least, and twice that at most.
const memberFor = 30 * time.Minute

// member is a connection that is compared. It is small, for there may be millions.
type member struct {
	heldOut bool    // it has the best path alone
	samples uint16  // that it has had in a comparison; no more are counted than there is room for, after a week
	trial   uint32  // which one
	sum     float32 // of their values
}

// members are the connections that are compared, in two generations: those used since the younger one began, and those used in the one before. At 1,000 new connections a second
// there are millions, and nobody can wait for all to be gone through.
type members struct {
	young, old map[uint32]member
	began      time.Time // the younger generation
}

func (g *members) of(connection uint32) (m member, is bool) {
	if m, is = g.young[connection]; !is {
		m, is = g.old[connection]
	}
	return m, is
}

// join says which group a connection is in now. In another one it is a connection like any other there.
func (g *members) join(connection uint32, heldOut bool) {
	m, is := g.of(connection)
	if !is || m.heldOut != heldOut {
		m = member{heldOut: heldOut}
	}
	g.young[connection] = m
}

func (g *members) leave(connection uint32) {
	delete(g.young, connection)
	delete(g.old, connection)
}

// forget drops connections of which nothing was heard for long.
func (g *members) forget(now time.Time) {
	if now.Sub(g.began) >= memberFor {
		g.old, g.young, g.began = g.young, map[uint32]member{}, now
	}
}
