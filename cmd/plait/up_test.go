package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/daemon"
	"plait.dev/plait/internal/rung"
)

// What is off is the lever congestion: the exits beside it may be on.
func TestPrintUpOff(t *testing.T) {
	for rules, want := range []string{"congestion off: no congestion control is chosen\n", "congestion off: no congestion control is chosen but by rules\n"} {
		var out strings.Builder
		printUp(&out, daemon.Status{Mode: daemon.Off, Rules: rules, Egress: &daemon.EgressSummary{Mode: daemon.On}}, false, "", "log")
		if !strings.Contains(out.String(), want) {
			t.Errorf("%d rules: got\n%s", rules, out.String())
		}
	}
}

// A signal log that is a pipe whose reader stands still ends in an error, before connections leave.
func TestSignalLogStalls(t *testing.T) {
	rung.Long(t)
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := (wholeLines{file}).Write([]byte(strings.Repeat("x", 999) + "\n")); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want that it takes too long", err)
		}
	case <-time.After(2 * samplePatience):
		t.Error("it waits for the reader")
	}
}

// A daemon that ends because of an error does not wait for who reads its log no more: systemd is to start it again.
func TestLastWordStalls(t *testing.T) {
	rung.Long(t)
	config := filepath.Join(t.TempDir(), "plait.yaml")
	if err := os.WriteFile(config, []byte("control: /proc/plait/control\nmetrics: off\n"), 0o600); err != nil { // where no socket can be
		t.Fatal(err)
	}
	unread, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer log.Close()
	_ = log.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := log.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(int(log.Fd()), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "plait", "up", "--foreground", "--config", config)
	c.Stderr = log
	if err := c.Run(); ctx.Err() != nil || c.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, %v; want that it ends with status 1", ctx.Err(), err)
	}
}

// A signal log whose disk is full ends with a whole sample.
func TestWholeLines(t *testing.T) {
	rung.Netns(t) // it mounts
	full := t.TempDir()
	if err := syscall.Mount("none", full, "tmpfs", 0, "size=4096"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(full, 0) }()
	file, err := os.OpenFile(filepath.Join(full, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line := strings.Repeat("x", 999) + "\n"
	for i := range 5 {
		if n, err := (wholeLines{file}).Write([]byte(line)); i < 4 && (n != len(line) || err != nil) || i == 4 && (n != 0 || !errors.Is(err, syscall.ENOSPC)) {
			t.Errorf("line %d: %d bytes, %v", i, n, err)
		}
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != strings.Repeat(line, 4) {
		t.Errorf("%d bytes, %v, want 4 lines of %d", len(got), err, len(line))
	}
}
