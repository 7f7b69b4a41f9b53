package cp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
)

// The clock jumps while a copy runs, forth and back, and between an interrupted copy and the next: nothing is lost, sent again or waited for. In the
// lab's guest, whose clock is nobody else's.
func TestClockJumps(t *testing.T) {
	if os.Getenv("CP_TEST_CLOCK") == "" {
		rung.Guest(t, "6.12", "PLAIT_TEST=netns CP_TEST_CLOCK=set ./tests -test.v -test.timeout 110s -test.run '^TestClockJumps$'")
		return
	}
	h := newHosts(t, "10mbit")
	dir := t.TempDir()
	from := filepath.Join(dir, "file")
	random(t, from, 4e6) // 1.6 s at least
	want, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	year := 365 * 24 * time.Hour
	for name, by := range map[string]time.Duration{"hour": time.Hour, "hour back": -time.Hour, "years": 10 * year, "years back": -20 * year} {
		to, start := filepath.Join(dir, "copy, "+name), time.Now()
		time.AfterFunc(400*time.Millisecond, func() { jump(t, by) })
		time.AfterFunc(800*time.Millisecond, func() { jump(t, -by) })
		end, _ := h.copy(from, "host:"+to)
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes are there, %v", name, len(got), err)
		}
		if took := time.Since(start); took > 5*time.Second || end.Copied != 1 || end.SentBytes != int64(len(want)) || len(end.Links) != 2 || end.Links[0].Error+end.Links[1].Error != "" {
			t.Errorf("%s: %+v after %v", name, end, took)
		}
	}
	to := filepath.Join(dir, "interrupted")
	cmd := h.start(nil, from, "host:"+to)
	time.Sleep(time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	jump(t, -20*year)
	defer jump(t, 20*year)
	end, _ := h.copy(from, "host:"+to)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) || end.SentBytes == 0 || end.SentBytes == int64(len(want)) {
		t.Errorf("going on: %d bytes are there, %v: %+v", len(got), err, end)
	}
	if end, _ := h.copy(from, "host:"+to); end.Kept != 1 || end.SentBytes != 0 {
		t.Errorf("a second time: %+v", end)
	}
}

// jump sets the clock.
func jump(t *testing.T, by time.Duration) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	if err == nil {
		now = unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	}
	if err != nil {
		t.Errorf("set the clock: %v", err)
	}
}
