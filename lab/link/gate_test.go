package link

import "testing"

func TestGate(t *testing.T) {
	var g Gate
	g.Send(1*ms, numbered(0, 1500))
	g.SetClosed(true)
	g.Send(2*ms, numbered(1, 1500))
	g.SetClosed(false)
	g.Send(3*ms, numbered(2, 1500))
	wantQueued(t, &g, 0, 0, 1)
	wantExits(t, &g, exit{1 * ms, 0}, exit{3 * ms, 2})
}
