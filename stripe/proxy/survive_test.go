package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"plait.dev/plait/stripe/ssh"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// survivor is a proxy whose ssh can be cut.
type survivor struct {
	*testing.T
	dir  string // of ssh
	lose func() // ssh
	said chan string
	err  chan error // why it has ended
	end  func()
}

func survive(t *testing.T) *survivor {
	command, dir, lose := sshtest.Fragile(t, "")
	ctx, end := context.WithCancel(t.Context())
	s := &survivor{T: t, dir: dir, lose: lose, said: make(chan string, 10), err: make(chan error, 1), end: end}
	opt := ssh.Options{Command: command}
	go func() { s.err <- Run(ctx, "host", "127.0.0.1:0", opt, func(line string) { s.said <- line }, nil) }()
	return s
}

// heard waits for the next thing that is said.
func (s *survivor) heard(want string) string {
	s.Helper()
	select {
	case line := <-s.said:
		if strings.Contains(line, want) {
			return line
		}
		s.Fatalf("%q is said, want %q", line, want)
	case err := <-s.err:
		s.Fatalf("it has ended: %v", err)
	case <-time.After(10 * time.Second):
		s.Fatalf("nothing is said, want %q", want)
	}
	return ""
}

// cut ends ssh.
func (s *survivor) cut() {
	s.Helper()
	s.lose()
	s.heard("ssh has ended; going on")
}

// ended waits for the error it ends with.
func (s *survivor) ended() error {
	s.Helper()
	select {
	case err := <-s.err:
		return err
	case <-time.After(20 * time.Second):
		s.Fatal("it does not end")
	}
	return nil
}

// far is the process of the far side.
func (s *survivor) far() int {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "far"))
	if err != nil {
		s.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		s.Fatal(err)
	}
	return pid
}

// A proxy outlives the connection of ssh, which has one address at each end; its far side ends with it all the same.
func TestGoesOnWithoutSSH(t *testing.T) {
	t.Parallel()
	s := survive(t)
	line := s.heard("proxy at ")
	through, err := proxy.SOCKS5("tcp", line[strings.LastIndex(line, " ")+1:], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	dial := func() net.Conn {
		c, err := through.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	echo := func(c net.Conn) {
		t.Helper()
		got := make([]byte, 5)
		_, err := io.WriteString(c, "hello")
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		if string(got) != "hello" || err != nil {
			t.Errorf("%q comes back, %v", got, err)
		}
	}
	before := dial()
	defer before.Close()
	echo(before)
	s.cut()
	echo(before)
	after := dial()
	defer after.Close()
	echo(after)
	s.end()
	if err := s.ended(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	before.Close()
	after.Close()
	far := s.far()
	for wait := 0; running(far); wait++ {
		if wait == 200 {
			t.Fatal("the far side does not end")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// running reports whether a process has not ended. Whoever it is left to may not have noticed.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Without ssh and the far side there is nothing to go on with.
func TestFarSideLost(t *testing.T) {
	t.Parallel()
	s := survive(t)
	s.heard("proxy at ")
	s.cut()
	if err := syscall.Kill(s.far(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.ended(); err == nil || !strings.HasSuffix(err.Error(), "start it again") {
		t.Errorf("%v; want what to do", err)
	}
}
