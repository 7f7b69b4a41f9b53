package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/vm"
)

// A machine that a run goes on using stays in the cache, however many others are made meanwhile.
func TestMachineInUseStays(t *testing.T) {
	l := &Lab{Cache: t.TempDir()}
	dir := func(name string, age time.Duration) string {
		path := filepath.Join(l.Cache, "state", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	used, unused := dir("base-used", time.Hour), dir("base-unused", 30*time.Minute)
	for i := range keepStates {
		dir("topology-"+string(rune('a'+i)), time.Minute)
	}
	if _, err := l.ready(t.Context(), &base{state: vm.State(used)}, &agent.Job{Spec: &experiment.Spec{}}, nil); err != nil {
		t.Fatal(err)
	}
	l.prune(keepStates - 1)
	if _, err := os.Stat(used); err != nil {
		t.Errorf("the machine in use: %v", err)
	}
	if _, err := os.Stat(unused); err == nil {
		t.Error("a machine that was not used for longer than the others is still there")
	}
}

// A saved machine of which a file is not as it was made is made anew, and one that is whole is not.
func TestBrokenMachineIsMadeAnew(t *testing.T) {
	l := &Lab{Cache: t.TempDir()}
	made := 0
	get := func() string {
		state, err := l.state(t.Context(), "base-x", func(string) {}, func(dir vm.State) error {
			made++
			return errors.Join(os.WriteFile(filepath.Join(string(dir), "ram"), make([]byte, 100), 0o644), os.WriteFile(filepath.Join(string(dir), metaFile), []byte("{}"), 0o644))
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(state)
	}
	dir := get()
	if get(); made != 1 {
		t.Errorf("made %d times", made)
	}
	for i, spoil := range []func() error{
		func() error { return os.Truncate(filepath.Join(dir, "ram"), 10) },
		func() error { return os.Truncate(filepath.Join(dir, metaFile), 0) },
		func() error { return os.Truncate(filepath.Join(dir, sizesFile), 0) },
		func() error { return os.Remove(filepath.Join(dir, "ram")) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if get(); made != i+2 {
			t.Errorf("%d: made %d times", i, made)
		}
	}
}

// Who waits for long for another process is told what for.
func TestLockSaysThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lab{Cache: t.TempDir()}
		unlock, err := l.lock(t.Context(), "base", func(s string) { t.Errorf("nobody has the lock: %s", s) })
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(quiet+time.Second, unlock)
		said := ""
		second, err := l.lock(t.Context(), "base", func(s string) { said += s })
		if err != nil {
			t.Fatal(err)
		}
		second()
		if said != "waiting for what another cell, or another plait, is making" {
			t.Errorf("said %q", said)
		}
	})
}

// One has a lock at a time, and nothing is left in the cache.
func TestLock(t *testing.T) {
	l := &Lab{Cache: t.TempDir()}
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range rung.Times(50, 500) {
				unlock, err := l.lock(t.Context(), "base", func(string) {})
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				runtime.Gosched()
				holders.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(l.Cache); err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

// An image is not replaced while another plait makes it, or boots a machine from it.
func TestImageWaitsForOthers(t *testing.T) {
	l := &Lab{Cache: t.TempDir()}
	t.Setenv("PATH", t.TempDir())
	made := filepath.Join(os.Getenv("PATH"), "made")
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "mmdebstrap"), []byte("#!/bin/sh\n: > "+made+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := l.lock(t.Context(), "image-6.12", func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.Image(ctx, "6.12"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("it was made meanwhile")
	}
}
