package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/image"
	"plait.dev/plait/lab/vm"
)

// keepStates is how many saved machines stay in the cache, about 600 MiB each.
const keepStates = 8

// stateDiskMin is what a machine in the making takes in bytes: its memory as far as it is used, and the root file system it boots.
const stateDiskMin = 1 << 30

// base is a machine that has booted and waits for its first job.
type base struct {
	state vm.State
	// Digest is the SHA-256 of image and agent, Kernel the guest's release, QEMU the emulator's version.
	Digest, Kernel, QEMU string
}

const metaFile = "machine.json"

// Base returns the booted machine of a kernel generation, making the image and booting it if that has not been done.
func (l *Lab) Base(ctx context.Context, kernel string, doing func(string)) (*base, error) {
	agentBinary, err := os.ReadFile(l.Agent)
	if err != nil {
		return nil, fmt.Errorf("read the agent: %w", err)
	}
	qemu, err := emulatorVersion(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := l.lockImage(ctx, kernel, doing)
	if err != nil {
		return nil, err
	}
	defer unlock()
	img, ok := image.Find(l.Cache, kernel)
	if !ok {
		if img, err = image.Build(ctx, l.Cache, kernel, doing); err != nil {
			return nil, err
		}
	}
	b := &base{Digest: digest([]byte(img.Digest), agentBinary), QEMU: qemu}
	key := digest([]byte(b.Digest), []byte(qemu), []byte(vm.Configuration()))
	b.state, err = l.state(ctx, "base-"+key[:24], doing, func(dir vm.State) error {
		doing("booting the guest: once, about 15 s")
		machine, err := l.bootable(kernel, string(dir))
		if err != nil {
			return err
		}
		defer os.Remove(machine.Initrd)
		invalid := ""
		err = vm.Boot(ctx, machine, dir, []byte("{}"), vm.Options{Console: l.Console}, func(line []byte) {
			var m agent.Message
			if json.Unmarshal(line, &m) != nil {
				return
			}
			b.Kernel, invalid = cmp.Or(m.Boot, b.Kernel), cmp.Or(m.Invalid, invalid)
		})
		if invalid != "" {
			return fmt.Errorf("boot the guest: %s", invalid)
		}
		if err != nil {
			return err
		}
		if b.Kernel == "" {
			return errors.New("boot the guest: it did not report")
		}
		meta, err := json.Marshal(b)
		return errors.Join(err, os.WriteFile(filepath.Join(string(dir), metaFile), meta, 0o644))
	})
	if err != nil {
		return nil, err
	}
	meta, err := os.ReadFile(filepath.Join(string(b.state), metaFile))
	return b, errors.Join(err, json.Unmarshal(meta, b))
}

// bootable puts the agent into a copy, in dir, of the image of a kernel generation, which has been made.
func (l *Lab) bootable(kernel, dir string) (vm.Image, error) {
	agentBinary, err := os.ReadFile(l.Agent)
	if err != nil {
		return vm.Image{}, fmt.Errorf("read the agent: %w", err)
	}
	img, _ := image.Find(l.Cache, kernel)
	machine := vm.Image{Kernel: img.Kernel, Initrd: filepath.Join(dir, "initrd")}
	return machine, img.WithAgent(agentBinary, machine.Initrd)
}

// prepared returns the machine in which the topology is ready.
func (l *Lab) prepared(ctx context.Context, b *base, n *agent.Network, doing func(string)) (vm.State, error) {
	input, err := json.Marshal(agent.Job{Prepare: n})
	if err != nil {
		return "", err
	}
	key := digest([]byte(b.state), input)
	return l.state(ctx, "topology-"+key[:24], doing, func(dir vm.State) error {
		doing("preparing the topology: once")
		invalid := ""
		err = vm.Extend(ctx, b.state, dir, input, func(line []byte) {
			var m agent.Message
			if json.Unmarshal(line, &m) != nil {
				return
			}
			if m.Doing != "" {
				doing(m.Doing)
			}
			if m.Invalid != "" {
				invalid = m.Invalid
			}
		})
		if invalid != "" {
			return &Invalid{invalid}
		}
		return err
	})
}

// Invalid is a precondition of a run that failed.
type Invalid struct{ Reason string }

func (e *Invalid) Error() string { return e.Reason }

// state returns the saved machine of that name, made by save if it is not in the cache. It becomes visible only when it
// is complete.
func (l *Lab) state(ctx context.Context, name string, doing func(string), save func(vm.State) error) (vm.State, error) {
	dir := filepath.Join(l.Cache, "state", name)
	unlock, err := l.lock(ctx, name, doing)
	if err != nil {
		return "", err
	}
	defer unlock()
	if whole(dir) {
		now := time.Now()
		return vm.State(dir), os.Chtimes(dir, now, now)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", &image.HostError{Err: err}
	}
	temp, err := l.newState("save a machine")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := save(vm.State(temp)); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(temp, sizesFile), sizes(temp), 0o644); err != nil {
		return "", &image.HostError{Err: err}
	}
	l.prune(keepStates - 1)
	return vm.State(dir), os.Rename(temp, dir)
}

// newState makes the directory of a machine in the making.
func (l *Lab) newState(what string) (string, error) {
	states := filepath.Join(l.Cache, "state")
	if err := os.MkdirAll(states, 0o755); err != nil {
		return "", &image.HostError{Err: err}
	}
	if err := image.NeedDisk(what, states, stateDiskMin); err != nil {
		return "", err
	}
	return os.MkdirTemp(states, "new-")
}

// sizesFile holds the sizes of a saved machine's other files.
const sizesFile = "sizes"

// sizes are the names and sizes of the files in dir, a line each.
func sizes(dir string) []byte {
	var text []byte
	files, _ := os.ReadDir(dir) // sorted; what cannot be read has other sizes than those that were written
	for _, f := range files {
		if info, err := f.Info(); err == nil && f.Name() != sizesFile {
			text = fmt.Appendf(text, "%s %d\n", f.Name(), info.Size())
		}
	}
	return text
}

// whole says that a saved machine is there as it was made. After a crash of the host files may be there and empty; the emulator would
// complain in words that nobody understands, or wait for a quarter of an hour.
func whole(dir string) bool {
	written, err := os.ReadFile(filepath.Join(dir, sizesFile))
	return err == nil && len(written) > 0 && bytes.Equal(written, sizes(dir))
}

// prune removes the saved machines that were not used for longest, all but so many. One in use goes on: its files stay until it ends.
func (l *Lab) prune(keep int) {
	dirs, err := os.ReadDir(filepath.Join(l.Cache, "state"))
	if err != nil {
		return
	}
	age := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	unfinished := func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "new-") && time.Since(time.Unix(0, age(e))) < time.Hour
	}
	dirs = slices.DeleteFunc(dirs, unfinished)
	slices.SortFunc(dirs, func(a, b os.DirEntry) int { return cmp.Compare(age(b), age(a)) })
	for _, old := range dirs[min(len(dirs), keep):] {
		_ = os.RemoveAll(filepath.Join(l.Cache, "state", old.Name()))
	}
}

// lock keeps other processes from making the same thing at the same time. It waits until they have, and says so when that takes long.
func (l *Lab) lock(ctx context.Context, name string, doing func(string)) (unlock func(), err error) {
	path := filepath.Join(l.Cache, name+".lock")
	long := time.After(quiet)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, &image.HostError{Err: fmt.Errorf("use the cache: %w; set PLAIT_CACHE to a directory that can be written", err)}
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil && isAt(f, path):
			return func() { _ = os.Remove(path); f.Close() }, nil
		case err == nil: // who had it has removed it, and another may have a new one
			f.Close()
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		f.Close()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-long:
			doing("waiting for what another cell, or another plait, is making")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isAt says that f is the file that has this name now.
func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}
