package daemon

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// What the daemon and its helper keep of root's capabilities; docs/egress/safety.md says what each is for.
var (
	daemonKeeps = []cap.Value{cap.NET_ADMIN}
	helperKeeps = []cap.Value{cap.NET_ADMIN, cap.SYS_PTRACE, cap.SYS_ADMIN}
)

// keep gives up all capabilities but some, in all threads, for good and for programs this process executes. It stays user root, who owns plait's files. What
// the process did not have it does not get.
func keep(some []cap.Value) error {
	have, want := cap.GetProc(), cap.NewSet()
	for _, v := range some {
		has, err := have.GetFlag(cap.Permitted, v)
		if err == nil && has {
			err = errors.Join(want.SetFlag(cap.Permitted, true, v), want.SetFlag(cap.Effective, true, v))
		}
		if err != nil {
			return fmt.Errorf("keep capability %v: %w", v, err)
		}
	}
	// Without the right to do so the bounding set stays: whoever took that right has bounded this process already.
	if can, _ := have.GetFlag(cap.Effective, cap.SETPCAP); can {
		for v := range cap.MaxBits() {
			if slices.Contains(some, v) {
				continue
			}
			if err := cap.DropBound(v); err != nil {
				return fmt.Errorf("give up capability %v for good: %w", v, err)
			}
		}
	}
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := want.SetProc(); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}
