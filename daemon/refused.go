package daemon

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// memlockHint is what cilium/ebpf says of every EPERM. Memory of BPF has not counted against that limit since Linux 5.11, and plait needs 6.1.
const memlockHint = " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)"

// refused says what is known of why the kernel does not permit this process to use BPF.
func refused(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	what := strings.ReplaceAll(err.Error(), memlockHint, "")
	missing, _ := missingCapabilities(setting("/proc/thread-self/status"))
	if len(missing) > 0 {
		return fmt.Errorf("%s: this process lacks %s: run plait as root; in a container, give it these", what, strings.Join(missing, ", "))
	}
	return fmt.Errorf("%s: this process has the capabilities it needs, so a user namespace, a seccomp filter or a security module forbids it: "+
		"run plait on the host and not in a container, and see the kernel's log", what)
}
