package daemon

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// Before Linux 6.4 anybody may remove the congestion control of a plait that is up: plait down with another control socket does not.
func TestDownOtherControl(t *testing.T) {
	h := newHost(t)
	held, err := Config{Control: h.dir + "/control", Congestion: Lever{Mode: On}}.locks()
	h.must(err)
	defer func() { h.must(closeAll(held)) }()
	spec, _, err := bpf.Load()
	h.must(err)
	spec.Maps[bpf.Name].Flags = 0 // no link, as there
	k, err := loadKernel(spec, false, bpf.Control{})
	h.must(err)
	defer func() { h.must(k.Close()) }()
	h.in(func() error {
		if _, err := Cleanup(h.dir+"/other", true); err == nil || err.Error() != errTaken(true).Error() {
			t.Errorf("got %v, want that another plait is up", err)
		}
		return nil
	})
	if !registered() {
		t.Error("the congestion control of the one that is up is removed")
	}
}

// plait down does not wait for a plait with another control socket that is up and stays, only for the helper of one that was killed.
func TestDownOtherControlAtOnce(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll)
	other := func() (took time.Duration, err error) {
		begin := time.Now()
		h.in(func() error {
			_, err = Cleanup(h.dir+"/other", true)
			return nil
		})
		return time.Since(begin), err
	}
	if took, err := other(); err == nil || err.Error() != errTaken(true).Error() || took > orphanPatience/2 {
		t.Errorf("got %v after %v, want at once that another plait is up", err, took)
	}
	inContainer := make(chan error)
	go func() { // which has a /run of its own, so that no lock is seen
		runtime.LockOSThread()
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/run/plait", "tmpfs", 0, "")); err != nil {
			inContainer <- err
			return
		}
		_, err := Cleanup(h.dir+"/other", true)
		inContainer <- err
		var some [2]unix.CapUserData // those of a container that plait can be up in
		for _, bit := range []uint{capNetAdmin, capBPF, capPerfmon} {
			some[bit/32].Effective |= 1 << (bit % 32)
			some[bit/32].Permitted |= 1 << (bit % 32)
		}
		if err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &some[0]); err == nil {
			_, err = Cleanup(h.dir+"/other", true)
		}
		inContainer <- err
	}()
	for _, rights := range []string{"all", "few"} {
		if err := <-inContainer; !errors.As(err, new(Others)) || err.Error() != errTaken(true).Error() {
			t.Errorf("in a container with %s rights: got %v, want that another plait is up", rights, err)
		}
	}
	p.kill()
	if took, err := other(); err != nil {
		t.Errorf("after the other one was killed: %v, after %v", err, took)
	}
}

// What root would not get either is no matter of rights.
func TestAsRoot(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.EACCES: true, syscall.EPERM: true, syscall.EROFS: false, syscall.ENOSPC: false, syscall.ENOENT: false} {
		if got := AsRoot(&fs.PathError{Op: "open", Path: "/run/plait", Err: errno}); (got != "") != want {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if os.Geteuid() != 0 {
		return // and /proc may be read-only
	}
	if _, err := lock("/proc/plait/control", 0); err == nil || strings.Contains(err.Error(), "root") {
		t.Errorf("got %v, want nothing of root", err)
	}
}
