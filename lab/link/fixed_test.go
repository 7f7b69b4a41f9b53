package link

import (
	"testing"
	"time"
)

// 12 Mbit/s: a packet of 1500 bytes takes 1 ms.
const fixedBps = 12_000_000

func TestFixedSerializes(t *testing.T) {
	f := NewFixed(FixedConfig{RateBps: fixedBps})
	f.Send(0, numbered(0, 1500))
	f.Send(0, numbered(1, 750))
	f.Send(ms/2, numbered(2, 1500))
	wantQueued(t, f, 3, 3750, 0)
	wantExits(t, f, exit{1 * ms, 0}, exit{ms + ms/2, 1}, exit{2*ms + ms/2, 2})
	// Idle time is not saved up.
	f.Send(10*ms, numbered(3, 1500))
	wantExits(t, f, exit{11 * ms, 3})
}

func TestFixedRoundsUpOncePerPacket(t *testing.T) {
	f := NewFixed(FixedConfig{RateBps: 3_000_000_000})
	f.Send(0, numbered(0, 1)) // 8 bits: 2.67 ns
	wantExits(t, f, exit{3, 0})
}

func TestFixedUnlimited(t *testing.T) {
	f := NewFixed(FixedConfig{Queue: QueueLimit{Packets: 1}})
	f.Send(ms, numbered(0, 1500))
	f.Send(ms, numbered(1, 1500))
	wantQueued(t, f, 0, 0, 0)
	wantExits(t, f, exit{ms, 0}, exit{ms, 1})
}

func TestFixedQueueCountsPacketInTransmission(t *testing.T) {
	f := NewFixed(FixedConfig{RateBps: fixedBps, Queue: QueueLimit{Packets: 2}})
	for i := range byte(3) {
		f.Send(0, numbered(i, 1500))
	}
	wantQueued(t, f, 2, 3000, 1)
	// At 1 ms the first has left, though nobody has received it.
	f.Send(1*ms, numbered(3, 1500))
	wantQueued(t, f, 2, 3000, 1)
	f.SetQueue(QueueLimit{Packets: 1})
	f.Send(1*ms, numbered(4, 1500))
	wantQueued(t, f, 2, 3000, 2)
	wantExits(t, f, exit{1 * ms, 0}, exit{2 * ms, 1}, exit{3 * ms, 3})
}

func TestFixedSetRate(t *testing.T) {
	f := NewFixed(FixedConfig{RateBps: fixedBps})
	f.Send(0, numbered(0, 1500))
	f.Send(0, numbered(1, 1500))
	// A quarter of the first is out; three quarters at a quarter of the rate take 3 ms.
	f.SetRate(ms/4, fixedBps/4)
	if at, _ := f.Next(); at != ms/4+3*ms {
		t.Errorf("first packet at %v, want %v", at, ms/4+3*ms)
	}
	// One of the three quarters is out after 1 ms; the other two take 0.25 ms each at double the first rate.
	f.SetRate(ms/4+ms, 2*fixedBps)
	wantExits(t, f, exit{ms/4 + ms + ms/4, 0}, exit{ms/4 + ms + ms/4 + ms/2, 1})
}

func TestFixedSetRateUnlimitedEmptiesQueue(t *testing.T) {
	f := NewFixed(FixedConfig{RateBps: fixedBps})
	f.Send(0, numbered(0, 1500))
	f.Send(0, numbered(1, 1500))
	f.SetRate(ms/2, 0)
	wantExits(t, f, exit{ms / 2, 0}, exit{ms / 2, 1})
}

// A rate that changes every microsecond between two values must send as much as their mean: no rounding adds up.
func TestFixedSetRateOftenIsExact(t *testing.T) {
	const slow, fast = 7_000_000, 17_000_000 // mean 12 Mbit/s
	f := NewFixed(FixedConfig{RateBps: slow})
	f.Send(0, numbered(0, 1500))
	for i := range 1000 {
		f.SetRate(time.Duration(i)*time.Microsecond, []int64{slow, fast}[i%2])
	}
	wantExits(t, f, exit{1 * ms, 0})
}
