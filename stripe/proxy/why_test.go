package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"plait.dev/plait/stripe/ssh"
)

// What the far side met, a program is told in SOCKS5's words, and the user in the system's.
func TestCodeOf(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	_, late := net.DialTimeout("tcp", "192.0.2.1:1", time.Nanosecond)
	for _, c := range []struct {
		err  error
		code byte
	}{
		{dial(syscall.ECONNREFUSED), 5},
		{dial(syscall.EHOSTUNREACH), 4},
		{dial(syscall.ETIMEDOUT), 4},
		{late, 4},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}}, 4},
		{dial(syscall.ENETUNREACH), 3},
		{dial(syscall.EACCES), 2},
		{errors.New("anything else"), 1},
	} {
		here := fmt.Errorf("target: %w", whyOf(c.err))
		if got := codeOf(here); got != c.code || here.Error() != "target: "+c.err.Error() {
			t.Errorf("%v: code %d, want %d; said as %q", c.err, got, c.code, here)
		}
	}
}

// A port where nobody listens is refused, and no general failure.
func TestRefusedByTarget(t *testing.T) {
	at, end := start(t)
	defer end()
	program, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if _, err := program.Write([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 1}); err != nil {
		t.Fatal(err)
	}
	var answer [12]byte
	if _, err := io.ReadFull(program, answer[:]); err != nil || answer[3] != 5 {
		t.Errorf("%v, %v", answer, err)
	}
}

// Where a program wants to go, which the far side repeats, is one line to the user, and commands no terminal.
func TestTargetIsPrintable(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(chan string, 10), make(chan error)
	go func() {
		ended <- Run(ctx, "host", "127.0.0.1:0", ssh.Options{Command: []string{self}}, func(line string) { said <- line }, nil)
	}()
	defer func() { cancel(); t.Log(<-ended) }()
	line := <-said
	program, err := net.Dial("tcp", line[strings.LastIndex(line, " ")+1:])
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	const name = "[\nplait: all is well\x1b[2J"
	if _, err := program.Write(append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(name))}, name+"\x00\x50"...)); err != nil {
		t.Fatal(err)
	}
	if line = <-said; strings.Count(line, "?plait: all is well?[2J") != 2 || strings.ContainsAny(line, "\n\x1b") {
		t.Errorf("%q", line)
	}
}

// reserve is a connection that ends before anything has come.
type reserve struct{ net.Conn }

func (reserve) Read([]byte) (int, error) { return 0, io.EOF }

// Browsers make connections in reserve, and monitors look whether the port is open: that they end without a word is no news.
func TestConnectionInReserve(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := carry(t.Context(), reserve{far}, nil, nil); err != nil {
		t.Errorf("told is: %v", err)
	}
}

// A program that waits for the other end to speak first is told of, in words.
func TestSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		if err := carry(t.Context(), far, nil, nil); err == nil || !strings.Contains(err.Error(), "has said nothing for 10s") {
			t.Errorf("told is: %v", err)
		}
	})
}

// A request whose end does not come is one all the same: of a slow program, of one that says too much, and of one that gives up, the user hears that.
func TestRequestWithoutEnd(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"slow":        {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n", "HTTP: the request had no end after 10s"},
		"a long name": {"CONNECT " + strings.Repeat("x", askBytes), "HTTP: the request ended early, or is longer than 16384 bytes"},
		"slow SOCKS":  {"\x05\x01\x00\x05\x01", "SOCKS5: the request had no end after 10s"},
		"no name":     {"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", "SOCKS5: CONNECT to nowhere"},
		"long":        {"CONNECT a:1 HTTP/1.1\r\nCookie: " + strings.Repeat("x", askBytes), "HTTP: the request ended early, or is longer than 16384 bytes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				_, _ = io.WriteString(near, c.said)
				_, _ = io.Copy(io.Discard, near)
			}()
			if err := carry(t.Context(), far, nil, nil); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("%s: told is %v; want %s", name, err, c.want)
			}
			far.Close()
		})
	}
}

func TestSOCKSEndsEarly(t *testing.T) {
	for _, said := range []string{"\x05", "\x05\x01\x00", "\x05\x01\x00\x05\x01", "\x05\x01\x00\x05\x01\x00\x03\x04na"} {
		if _, _, err := asked(bufio.NewReader(strings.NewReader(said)), io.Discard); err == nil || err.Error() != "SOCKS5: the request ended early" {
			t.Errorf("%q: %v", said, err)
		}
	}
}
