package egress

import "time"

// memberFor is how long a connection without transfers keeps its group at least, and twice that at most.
const memberFor = 30 * time.Minute

// member is a connection that is compared. It is small, for there may be millions.
type member struct {
	heldOut bool    // it has the best path alone
	out     bool    // it is not compared now
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

// known is what is known of a connection, and is whether it is compared.
func (g *members) known(connection uint32) (m member, is bool) {
	if m, is = g.young[connection]; !is {
		m, is = g.old[connection]
	}
	return m, is && !m.out
}

// join says which group a connection is in now. In another one it is a connection like any other there.
func (g *members) join(connection uint32, heldOut bool) {
	m, _ := g.known(connection)
	if m.heldOut != heldOut {
		m = member{heldOut: heldOut}
	}
	m.out = false
	g.young[connection] = m
}

// leave has it in none. If it comes back it is the same connection still.
func (g *members) leave(connection uint32) {
	if m, is := g.known(connection); is {
		m.out = true
		g.young[connection] = m
	}
}

// forget drops connections of which nothing was heard for long.
func (g *members) forget(now time.Time) {
	if now.Sub(g.began) >= memberFor {
		g.old, g.young, g.began = g.young, map[uint32]member{}, now
	}
}
