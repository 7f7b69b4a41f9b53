package agent

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// oomKill is how the kernel's log tells of a process that it has killed for memory (mm/oom_kill.c).
var oomKill = regexp.MustCompile(`Out of memory: Killed process \d+ \(([^)]*)\)`)

// starved is an error if the guest has run out of memory. Then the kernel has killed whatever held most, which may be a router, a server in the background or the
// emulator of links, and what is measured afterwards means nothing.
func starved() error {
	const all = 3 // SYSLOG_ACTION_READ_ALL (syslog(2))
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(all, log)
	if err != nil {
		return fmt.Errorf("read the guest's kernel log: %w", err)
	}
	return outOfMemory(log[:n])
}

// outOfMemory is starved by a kernel's log.
func outOfMemory(log []byte) error {
	var names []string
	for _, m := range oomKill.FindAllSubmatch(log, 3) {
		names = append(names, string(m[1]))
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("the guest ran out of its memory of 1 GiB, and its kernel killed %s; let what runs in it need less", strings.Join(names, ", "))
}
