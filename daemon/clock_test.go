package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

func TestMonotonicOffset(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0,
		"monotonic           0         0\nboottime            5         0\n":             0,
		"monotonic       -1000  25000000\nboottime            5         0\n":             -1000e9 + 25e6,
		"boottime            5         0\nmonotonic      100000         1\n":             100000e9 + 1,
		"monotonic           x         0\nnot what was expected\nmonotonic 7 0 and more": 7e9,
	} {
		if got := monotonicOffsetNs(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// The heartbeat is compared with the kernel's own clock. In a time namespace that is behind it would look stale, and no connection would be taken; in one that is
// ahead it would look fresh long after the daemon's death, and none would return.
func TestTimeNamespace(t *testing.T) {
	rung.Netns(t)
	const clock = "PLAIT_TEST_CLOCK"
	if os.Getenv(clock) != "" {
		fmt.Println("clock", monotonicNs())
		return
	}
	for _, offset := range []string{"100000", "-100"} {
		inside := exec.Command("unshare", "--time", "--fork", "--monotonic", offset, os.Args[0], "-test.run", "^TestTimeNamespace$")
		inside.Env = append(os.Environ(), clock+"=1")
		said, err := inside.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		_, rest, _ := strings.Cut(string(said), "clock ")
		number, _, _ := strings.Cut(rest, "\n")
		got, err := strconv.ParseUint(number, 10, 64)
		if apart := time.Duration(monotonicNs() - got); err != nil || apart < 0 || apart > time.Minute {
			t.Errorf("%s s ahead: %d, %v: %v before the clock here, want less than a minute", offset, got, err, apart)
		}
	}
}

// setForward returns a time as one has it that was taken before the clock was set.
func setForward(at time.Time, forward time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64 // the monotonic clock's; time.Time has both
		loc  *time.Location
	})(unsafe.Pointer(&at)).ext += int64(forward)
	return at.Add(-forward) // the same by the monotonic clock
}

// The clock is set while something lasts: how long it has lasted does not change.
func TestByClock(t *testing.T) {
	now := time.Now()
	if began := now.Add(-time.Minute); byClock(began, now) != began {
		t.Error("a clock that nobody set gives another time")
	}
	if got := byClock(time.Time{}, now); !got.IsZero() {
		t.Errorf("got %v for never", got)
	}
	for _, forward := range []time.Duration{time.Hour, -24 * time.Hour} {
		if shown := byClock(setForward(now.Add(-time.Minute), forward), now).Round(0); now.Round(0).Sub(shown) != time.Minute {
			t.Errorf("set by %v: got %v, want %v", forward, shown, now.Add(-time.Minute))
		}
	}
}

// The host was suspended for an hour while something lasted: it began when it did. A wait ends an hour later. That the clock was set by a day as well is not taken for sleep.
func TestByClockAsleep(t *testing.T) {
	now := time.Now()
	began, until := setForward(now.Add(-time.Minute), time.Hour), setForward(now.Add(time.Minute), time.Hour)
	if got := byClocks(began, now, time.Hour); !got.Equal(began) {
		t.Errorf("began %v, got %v", began, got)
	}
	if got := byClocks(until, now, time.Hour).Round(0).Sub(now.Round(0)); got != time.Minute {
		t.Errorf("a wait of a minute more ends in %v", got)
	}
	if got := now.Round(0).Sub(byClocks(setForward(now.Add(-time.Minute), 24*time.Hour), now, time.Hour).Round(0)); got != time.Minute {
		t.Errorf("a minute ago by a clock that was set: %v ago", got)
	}
	if s := asleep() - asleepAtStart; s.Abs() > time.Second {
		t.Errorf("this host was suspended for %v during the test", s)
	}
}

// A destination was given back before the clock was set: when that was is said by the clock as it is now.
func TestGivenBackByClock(t *testing.T) {
	prefix, at := netip.MustParsePrefix("192.0.2.0/24"), time.Now().Add(-time.Minute)
	to := destination{prefix, "bursts"}
	d := &Daemon{kernel: &kernel{}, policies: []policy{{name: "bursts", lever: Lever{Mode: On}}}, reverted: map[destination]PrefixStatus{to: {RevertedAt: setForward(at, 24*time.Hour)}}}
	if got, want := d.unmanaged(bpf.Answer{InCgroup: 1}, netip.MustParseAddr("192.0.2.9")), "is given back since "+at.Format(time.RFC3339); !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}
