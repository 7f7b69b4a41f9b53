package daemon

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// monotonicNs is the clock the kernel half reads: CLOCK_MONOTONIC without what this process's time namespace, as a container may have one, adds to it.
func monotonicNs() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with a valid clock and pointer
	return uint64(t.Nano() - timeNamespaceNs())
}

// timeNamespaceNs is what it adds. That is settled before the first process is in the namespace, and there is none before Linux 5.6.
var timeNamespaceNs = sync.OnceValue(func() int64 {
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")
	return monotonicOffsetNs(string(offsets))
})

// monotonicOffsetNs reads the text of /proc/PID/timens_offsets: a clock, seconds and nanoseconds on each line.
func monotonicOffsetNs(text string) int64 {
	for line := range strings.Lines(text) {
		var clock string
		var s, ns int64
		if n, _ := fmt.Sscan(line, &clock, &s, &ns); n == 3 && (clock == "monotonic" || clock == fmt.Sprint(unix.CLOCK_MONOTONIC)) {
			return s*1e9 + ns
		}
	}
	return 0
}

// byClock is when something was or will be, by the clock as it is now. That of a host without a battery is set minutes after boot, and what began before would have done so years ago, or in the future. As long as nobody
// sets it the answer is the same.
func byClock(at, now time.Time) time.Time { return byClocks(at, now, asleep()-asleepAtStart) }

// byClocks is byClock on a host that was suspended for so long since the process began: to the monotonic clock, which stands still then, that looks as if the clock had been set forward. What is still to come comes later by
// it, because the process waits by the monotonic clock.
func byClocks(at, now time.Time, slept time.Duration) time.Time {
	set := now.Add(at.Sub(now)) // the difference is that of the monotonic clock
	forward := set.Round(0).Sub(at.Round(0))
	wasAsleep := at.Before(now) && 0 < forward && forward <= slept+time.Second
	if at.IsZero() || forward.Abs() <= time.Second || wasAsleep {
		return at
	}
	return set
}

var asleepAtStart = asleep()

// asleep is how long the host has been suspended since it booted, give or take what a time namespace adds.
func asleep() time.Duration {
	var boot, monotonic unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // cannot fail with a valid clock and pointer
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic)
	return time.Duration(boot.Nano() - monotonic.Nano())
}
