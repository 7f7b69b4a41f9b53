package link

import "testing"

func TestDelay(t *testing.T) {
	d := NewDelay(10 * ms)
	d.Send(1*ms, numbered(0, 1500))
	d.Send(1*ms, numbered(1, 40))
	wantQueued(t, d, 0, 0, 0)
	wantExits(t, d, exit{11 * ms, 0}, exit{11 * ms, 1})
}

func TestDelayReducedLaterPacketOvertakes(t *testing.T) {
	d := NewDelay(10 * ms)
	d.Send(0, numbered(0, 1500))
	d.SetDelay(3 * ms)
	d.Send(1*ms, numbered(1, 1500))
	wantExits(t, d, exit{4 * ms, 1}, exit{10 * ms, 0})
}
