// Package netns runs code and programs inside named network namespaces (/run/netns, as ip-netns(8) keeps them).
package netns

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dir is where namespaces have their names.
const Dir = "/run/netns"

// Do runs f on an OS thread inside the namespace; "" is the current one. Sockets and programs f creates stay there; goroutines it starts do not
// run there.
func Do(name string, f func() error) error {
	if name == "" {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine and takes the namespace along
		fd, err := unix.Open(filepath.Join(Dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- fmt.Errorf("open network namespace %s: %w", name, err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter network namespace %s: %w", name, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Start starts a program inside the namespace.
func Start(name string, cmd *exec.Cmd) error { return Do(name, cmd.Start) }
