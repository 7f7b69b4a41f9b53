package vm

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A batch job of a user who is nice to others (nice plait lab run) stays so: only root may be less nice again.
func TestScheduleStaysNice(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test
	const nice = 7
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
		t.Fatal(err)
	}
	if err := schedule(unix.SCHED_BATCH, 0, unix.Gettid()); err != nil {
		t.Fatal(err)
	}
	got, err := unix.SchedGetAttr(unix.Gettid(), 0)
	if err != nil || got.Policy != unix.SCHED_BATCH || got.Nice != nice {
		t.Errorf("policy %d, nice %d, %v; want a batch job as nice as before, %d", got.Policy, got.Nice, err, nice)
	}
}
