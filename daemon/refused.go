package daemon

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// memlockHint is what cilium/ebpf says of every EPERM. Memory of BPF has not counted against that limit since Linux 5.11, and plait needs 6.1.
const memlockHint = " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)"

// refused says what is known of why the kernel does not permit this process to use BPF. A right that is missing has many faces: EPERM, a helper that the verifier
// does not know, or a feature that cilium/ebpf takes for absent because it could not try it.
func refused(err error) error {
	missing, _ := missingCapabilities(setting("/proc/thread-self/status"))
	forbidden, what := errors.Is(err, unix.EPERM), "operation not permitted"
	if forbidden {
		what = strings.ReplaceAll(err.Error(), memlockHint, "")
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%s: this process lacks %s: run plait as root; in a container, give it these", what, strings.Join(missing, ", "))
	case forbidden:
		return fmt.Errorf("%s: this process has the capabilities it needs, so a user namespace, a seccomp filter or a security module forbids it: "+
			"run plait on the host and not in a container, and see the kernel's log", what)
	}
	return err
}
