package daemon

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// The time for which CUBIC has grown does not count pauses, and no more than pauses is left out of it, also when the kernel's jiffies have gone round since it was chosen: where
// there are 1000 in a second that takes 49 days.
func TestCubicGrowsForMonths(t *testing.T) {
	const victim, grows = 60, time.Second
	packets := 0
	s := newSwitching(t, "cubic", func(uint32, func()) bool { packets++; return packets == victim })
	us := func() uint64 { return uint64(monotonicNs()) / 1000 }
	for first, at := us(), 0; ; at += 64 << 10 {
		s.must(send(s.server, at, 64<<10))
		grown := func() bool {
			epoch := s.state().get("cubic", "epoch_us")
			return epoch > 0 && us() > epoch+uint64(grows/time.Microsecond)
		}
		if grown() {
			s.acknowledged(s.server)
			if grown() { // still: of what was on the way nothing was lost
				break
			}
		}
		if us() > first+30*uint64(time.Second/time.Microsecond) {
			t.Fatal("no loss from which it has grown for a second")
		}
	}
	var jiffy unix.Timespec
	s.must(unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &jiffy))
	before := s.state()
	before.set("cubic", "anchor_us", before.get("cubic", "anchor_us")-uint64(jiffy.Nano()/1000)<<32)
	before.set("cubic", "anchor_jiffies", before.get("cubic", "anchor_jiffies")-1<<32)
	time.Sleep(100 * time.Millisecond)
	now := us()
	s.must(send(s.server, 0, 1000))
	after := s.state().get("cubic", "epoch_us")
	if grown := time.Duration(now-after) * time.Microsecond; after == before.get("cubic", "epoch_us") || grown < grows {
		t.Errorf("after a pause it has grown for %v, want %v at least and not the pause", grown, grows)
	}
}

// A connection that was idle when plait took it, or its application asked for plait, has grown for no longer than since then: what the socket has of the time is that of its last packet.
func TestAlgorithmsBeginNow(t *testing.T) {
	for algorithm, since := range map[string]string{"cubic": "anchor_us", "htcp": "loss_us"} {
		t.Run(algorithm, func(t *testing.T) {
			const idle = 500 * time.Millisecond
			s := newSwitching(t, algorithm, func(uint32, func()) bool { return false })
			s.must(send(s.server, 0, 1000))
			s.acknowledged(s.server)
			time.Sleep(idle)
			for _, name := range []string{systemDefault, bpf.Name} {
				onSocket(s.host, s.server, func(fd int) error {
					return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
				})
			}
			if ago := time.Duration(monotonicNs()) - time.Duration(s.state().get(algorithm, since))*time.Microsecond; ago > idle {
				t.Errorf("it begins %v ago, at its last packet", ago)
			}
		})
	}
}
