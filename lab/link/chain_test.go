package link

import (
	"testing"
	"time"
)

func TestChainEntersNextAtThatTime(t *testing.T) {
	// 1 ms and 2 ms of serialization with 10 ms of propagation between: the second link's queue builds up.
	c := Chain(NewFixed(FixedConfig{RateBps: fixedBps}), NewDelay(10*ms), NewFixed(FixedConfig{RateBps: fixedBps / 2}))
	for i := range byte(3) {
		c.Send(0, numbered(i, 1500))
	}
	wantExits(t, c, exit{13 * ms, 0}, exit{15 * ms, 1}, exit{17 * ms, 2})
}

// One late Receive must find the same as many timely ones: packets leave a queue at their time, not when asked for.
func TestChainLateReceive(t *testing.T) {
	c := Chain(NewFixed(FixedConfig{RateBps: fixedBps}), Chain(NewDelay(ms), NewFixed(FixedConfig{RateBps: fixedBps / 3, Queue: QueueLimit{Packets: 1}})))
	for i := range byte(6) {
		c.Send(0, numbered(i, 1500))
	}
	// They reach the second link at 2, 3 ... 7 ms. It is busy for 3 ms with the first and then takes the one that
	// comes just as it becomes idle, at 5 ms.
	var got []byte
	for p, ok := c.Receive(time.Second); ok; p, ok = c.Receive(time.Second) {
		got = append(got, p.Data[0])
	}
	if string(got) != "\x00\x03" {
		t.Errorf("packets %v came out, want [0 3]", got)
	}
	wantQueued(t, c, 0, 0, 4)
}

func TestChainCounts(t *testing.T) {
	c := Chain(NewFixed(FixedConfig{RateBps: fixedBps, Queue: QueueLimit{Packets: 2}}), NewLoss(1, 1), NewDelay(ms))
	for i := range byte(3) {
		c.Send(0, numbered(i, 1500))
	}
	wantQueued(t, c, 2, 3000, 1)
	wantExits(t, c)
	wantQueued(t, c, 0, 0, 3)
}
