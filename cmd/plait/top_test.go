package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/term"

	"plait.dev/plait/daemon"
)

// screen is a pseudo terminal with plait top on it.
type screen struct {
	*testing.T
	keys, tty *os.File
	before    *term.State
	cmd       *exec.Cmd

	mu   sync.Mutex
	text bytes.Buffer // all that was written
}

// watch starts plait top on a terminal of that size and waits for its first picture.
func watch(t *testing.T, control string, width, height uint16) *screen {
	t.Helper()
	s := begin(t, control, "xterm", width, height)
	s.shows("q: quit")
	return s
}

// begin starts plait top on a terminal of that kind and size.
func begin(t *testing.T, control, kind string, width, height uint16) *screen {
	t.Helper()
	s := &screen{T: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.keys, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must(err)
	t.Cleanup(func() { s.keys.Close() })
	var locked, number int32
	must(ioctl(s.keys, syscall.TIOCSPTLCK, unsafe.Pointer(&locked)))
	must(ioctl(s.keys, syscall.TIOCGPTN, unsafe.Pointer(&number)))
	s.tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(err)
	t.Cleanup(func() { s.tty.Close() })
	s.resize(width, height)
	s.before, err = term.GetState(int(s.tty.Fd()))
	must(err)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := s.keys.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
		}
	}()
	s.cmd = exec.Command("plait", "top", "--control", control)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.tty, s.tty, s.tty
	s.cmd.Env = append(os.Environ(), "TERM="+kind)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

// ioctl asks a terminal's driver; see ioctl_tty(2).
func ioctl(terminal *os.File, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

func (s *screen) resize(width, height uint16) {
	size := struct{ rows, columns, x, y uint16 }{rows: height, columns: width}
	if err := ioctl(s.tty, syscall.TIOCSWINSZ, unsafe.Pointer(&size)); err != nil {
		s.Fatal(err)
	}
}

func (s *screen) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// shows waits until a text is written.
func (s *screen) shows(text string) {
	s.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		late := time.Now().After(end) // before it looks, or a pause of the test fails it
		if strings.Contains(s.said(), text) {
			return
		}
		if late {
			s.Fatalf("got %q, want %q in it", s.said(), text)
		}
	}
}

// ends waits for the end of plait top and checks its exit status, and that the terminal is as before.
func (s *screen) ends(status int) {
	s.Helper()
	ended := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(ended) }() // its status is looked at below
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		s.Fatal("it goes on")
	}
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.Errorf("exit status %d, want %d", got, status)
	}
	s.shows(leaveScreen)
	if after, err := term.GetState(int(s.tty.Fd())); err != nil || !reflect.DeepEqual(after, s.before) {
		s.Errorf("the terminal is left as %+v, %v, want %+v", after, err, s.before)
	}
}

// serveStandIn answers until the returned function is called.
func serveStandIn(t *testing.T, control string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := daemon.Serve(ctx, control, standIn{cancel}); err != nil {
			t.Error(err)
		}
	}()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := daemon.Client(control).Status(); err == nil {
			return func() { cancel(); <-gone }
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// plait top on a terminal: every way out leaves the terminal as it was.
func TestTop(t *testing.T) {
	control := filepath.Join(t.TempDir(), "control")
	stop := serveStandIn(t, control)
	for name, key := range map[string]string{"q": "q", "Q after another key": "xQ", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			s := watch(t, control, 200, 24)
			s.shows(enterScreen + home)
			s.shows("198.51.100.7:50000")
			if _, err := io.WriteString(s.keys, key); err != nil {
				t.Fatal(err)
			}
			s.ends(0)
		})
	}
	t.Run("e", func(t *testing.T) {
		s := watch(t, control, 200, 24)
		if _, err := io.WriteString(s.keys, "e"); err != nil {
			t.Fatal(err)
		}
		s.shows("q: quit  e: connections")
		if _, err := io.WriteString(s.keys, "eq"); err != nil {
			t.Fatal(err)
		}
		s.ends(0)
	})
	t.Run("ended by a signal", func(t *testing.T) {
		s := watch(t, control, 80, 24)
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.ends(130)
	})
	t.Run("a terminal without a cursor", func(t *testing.T) {
		s := begin(t, control, "dumb", 80, 24)
		if _ = s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("exit status %d, want 2", s.cmd.ProcessState.ExitCode())
		}
		s.shows("plait: top: the terminal cannot move its cursor (TERM=dumb); use plait status\r\n")
		if s.mu.Lock(); strings.Contains(s.text.String(), "\x1b") {
			t.Errorf("it was told: %q", &s.text)
		}
		s.mu.Unlock()
	})
	t.Run("resized", func(t *testing.T) {
		s := watch(t, control, 200, 24)
		s.resize(20, 2)
		s.shows(home + "plait 1.2.3, up for " + clearLine + "\r\nq: quit")
	})
	t.Run("the daemon vanishes", func(t *testing.T) {
		s := watch(t, control, 80, 24)
		stop()
		s.ends(exitNotUp)
		s.shows(leaveScreen + "plait: ask for status on " + control + ": plait is not up")
	})
	t.Run("the daemon hangs", func(t *testing.T) {
		stop := serveStandIn(t, control)
		s := watch(t, control, 80, 24)
		stop()
		l, err := net.Listen("unix", control)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := l.Accept() // it asks, and nobody answers
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(s.keys, "q"); err != nil {
			t.Fatal(err)
		}
		s.ends(0)
	})
}

// Both tables have their share of a screen.
func TestRows(t *testing.T) {
	for _, c := range []struct{ prefixes, sockets, warnings, height, wantPrefixes, wantSockets int }{
		{100, 100, 0, 31, 10, 10},
		{100, 100, 2, 31, 9, 9},
		{3, 100, 0, 31, 3, 17},
		{100, 3, 0, 31, 17, 3},
		{100, 0, 0, 31, 20, 0},
		{100, 100, 0, 5, 0, 0},
	} {
		s := daemon.Status{Prefixes: make([]daemon.PrefixStatus, c.prefixes), Sockets: make([]daemon.SocketStatus, c.sockets), Warnings: make([]string, c.warnings)}
		if p, k := rows(s, c.height); p != c.wantPrefixes || k != c.wantSockets {
			t.Errorf("%+v: got %d and %d", c, p, k)
		}
	}
}

// What the other levers say takes lines of the screen, too: what is left out is still told below both tables.
func TestDrawMore(t *testing.T) {
	s := standIn{}.Status()
	for range 5 {
		s.Prefixes, s.Sockets = append(s.Prefixes, s.Prefixes...), append(s.Sockets, s.Sockets...)
	}
	s.Ackpath = &daemon.AckpathSummary{Mode: daemon.On}
	const height = 30
	picture := draw(view{Status: s}, false, s.UpSince, 200, height)
	if n := strings.Count(picture, " more; plait status --json has all"); n != 2 {
		t.Errorf("%d tables say that there is more, want both:\n%s", n, picture)
	}
	if n := strings.Count(picture, "\n") + 1; n != height {
		t.Errorf("%d lines, want %d", n, height)
	}
}
