package daemon

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// What a pass over all TCP sockets does (bpf/host.h).
const (
	passTake    uint32 = 1 // plait comes up
	passRevise  uint32 = 2 // rules have changed
	passRelease uint32 = 3 // plait goes
	passFind    uint32 = 4 // somebody asks about a connection
)

// passProgram makes the pass.
const passProgram = "plait_sockets"

// pass visits the TCP sockets of this network namespace, and of all others that can be found.
func (k *kernel) pass(what uint32) error {
	if !k.takes {
		return nil
	}
	if err := k.Variables["plait_pass"].Set(what); err != nil {
		return fmt.Errorf("set what the pass over all sockets does: %w", err)
	}
	program := k.Programs[passProgram]
	return k.beating(func() error {
		if err := visit(program); err != nil {
			return err
		}
		if k.helper != nil {
			return k.helper.visit()
		}
		elsewhere(program, func() {})
		return nil
	})
}

// beating keeps the heartbeat going while f runs, which may take longer than the silence after which connections leave. f leaves k.control alone.
func (k *kernel) beating(f func() error) error {
	var failed error
	var beats sync.WaitGroup
	ended := make(chan struct{})
	beats.Go(func() { // f stays on its thread, which tests have in another namespace
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				failed = k.beat(time.Duration(k.control.SampleNs))
			}
		}
	})
	err := f()
	close(ended)
	beats.Wait()
	return errors.Join(err, failed)
}

// elsewhere visits the sockets of all other namespaces, and calls each after every one of them.
func elsewhere(program *ebpf.Program, each func()) {
	for _, path := range otherNamespaces() {
		within(path, func() error { return visit(program) })
		each()
	}
}

// visit visits all TCP sockets of the calling thread's network namespace.
func visit(program *ebpf.Program) error {
	it, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return fmt.Errorf("attach the pass over all sockets: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("open the pass over all sockets: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("pass over all sockets: %w", err)
	}
	return nil
}

// otherNamespaces are the network namespaces of this host's processes, and those that ip-netns(8) and Docker keep by name, a path
// each. One that is alive only by its sockets is not found: those follow with what they send.
func otherNamespaces() (paths []string) {
	type inode struct{ device, number uint64 }
	var s unix.Stat_t
	seen := map[inode]bool{}
	if unix.Stat("/proc/thread-self/ns/net", &s) == nil {
		seen[inode{s.Dev, s.Ino}] = true
	}
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/run/netns/*", "/run/docker/netns/*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, path := range found {
			if unix.Stat(path, &s) == nil && !seen[inode{s.Dev, s.Ino}] {
				seen[inode{s.Dev, s.Ino}] = true
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// within runs f in the network namespace at a path, if it still is one: a process may have ended since.
func within(path string, f func() error) {
	runtime.LockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return
	}
	defer unix.Close(own)
	if other, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		if unix.Setns(other, unix.CLONE_NEWNET) == nil {
			_ = f() // its own error if the namespace went away; what stays follows with what it sends
		}
		unix.Close(other)
	}
	if unix.Setns(own, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // or nothing else may run on this thread
	}
}
