package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"plait.dev/plait/daemon"
	"plait.dev/plait/internal/rung"
)

// ended is a daemon whose process is gone when it is told to end.
type ended struct {
	standIn
	pid int
}

func (d ended) Status() daemon.Status { return daemon.Status{PID: d.pid} }

// A plait that leaves connections alone can be up beside one that takes them. plait down ends the one it is for, and that is all it was asked for; where nothing is up it says
// that another is.
func TestDownBesideAnother(t *testing.T) {
	rung.Netns(t)
	runtime.LockOSThread() // whose /run/plait is its own: tests of daemon have plaits up meanwhile
	if err := os.MkdirAll("/run/plait", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("tmpfs", "/run/plait", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile("/run/plait/congestion.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	const setOFD = 37                                                                                       // F_OFD_SETLK: a lock of the file, as of another process
	if err := syscall.FcntlFlock(other.Fd(), setOFD, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil { // it stays
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(t.TempDir(), "control")
	down := func() (int, string) {
		out := new(bytes.Buffer)
		root := newRoot(out)
		root.SetArgs([]string{"down", "--control", control})
		if err := root.ExecuteContext(t.Context()); err != nil {
			return 1, out.String() + err.Error()
		}
		return 0, out.String()
	}
	for name, result := range map[string]string{"by hand": "", "after systemd's has ended": "success"} {
		t.Setenv("SERVICE_RESULT", result)
		if status, said := down(); (status == 0) != (result != "") {
			t.Errorf("%s, nothing up: status %d: %s", name, status, said)
		}
	}
	t.Setenv("SERVICE_RESULT", "")
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- daemon.Serve(ctx, control, ended{standIn{stop}, gone.Process.Pid}) }()
	for daemon.Client(control).Reload() != nil { // it does not answer yet
		if ctx.Err() != nil {
			t.Fatal(<-served)
		}
	}
	if status, said := down(); status != 0 {
		t.Errorf("one is up: status %d: %s", status, said)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
