package vm

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// While there are free cores no two machines get the same one; what is given back is free again.
func TestClaimCore(t *testing.T) {
	claims := fmt.Sprintf("@plait-test-%d-", os.Getpid())
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	if may.Count() < 2 {
		if core, _ := claimCore(claims); core != -1 {
			t.Errorf("core %d of one; want none", core)
		}
		return
	}
	first, free := claimCore(claims)
	second, freeSecond := claimCore(claims)
	defer freeSecond()
	if first == second || !may.IsSet(first) || !may.IsSet(second) {
		t.Errorf("cores %d and %d; want two of those this process may use", first, second)
	}
	free()
	for range may.Count() {
		if core, free := claimCore(claims); core == first {
			free()
			return
		}
	}
	t.Errorf("core %d was given back, but is not found again", first)
}

// A program has SIGINT blocked from its first instruction, on any core and on one; the thread that started it has not.
func TestStartOn(t *testing.T) {
	mine, free := claimCore(fmt.Sprintf("@plait-test-%d-", os.Getpid()))
	defer free()
	for _, core := range []int{-1, mine} {
		var out strings.Builder
		cmd := exec.Command("grep", "SigBlk", "/proc/self/status", "/proc/thread-self/status")
		cmd.Stdout = &out
		if err := startOn(core, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "0000000000000002\n"); n != 2 {
			t.Errorf("core %d: %q, want SIGINT", core, out.String())
		}
	}
	self, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(self), "SigBlk:\t0000000000000000\n") {
		t.Errorf("this thread has signals blocked: %s", self)
	}
}
