// Package proxy lets programs that cannot be changed use all links: a SOCKS5 and HTTP CONNECT proxy on this host, whose connections go
// over all links to another host and on from there.
package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/internal/printable"
	"plait.dev/plait/stripe/ssh"
)

const (
	// askTime is how long a program may take to say where it wants to go.
	askTime = 10 * time.Second
	// askBytes is how long its request may be.
	askBytes = 16 << 10
	// connectTime is how long the way there may take.
	connectTime = 30 * time.Second
	// resetTime is how long what came before a reset may take to the other end.
	resetTime = 10 * time.Second
	// maxPrograms is how many connections there may be at once; the far side takes no more than 1000.
	maxPrograms = 900
)

// Run offers the proxy at an address of this host until ctx ends, or ssh has and no link leads to the far side any more. say tells the user where it is, and what goes wrong. watch, if not nil, sees each connection with the host.
func Run(ctx context.Context, host, at string, opt ssh.Options, say func(string), watch func(*stripe.Conn)) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("proxy: %w; choose another address or port with --at", err)
	}
	defer l.Close()
	opt.Many = true
	far, err := ssh.Start(ctx, host, opt)
	if err != nil {
		return err
	}
	defer far.Close()
	kept, err := reach(ctx, "", far)
	if err != nil {
		return err
	}
	say(ready(l.Addr()))
	ended, end := context.WithCancel(ctx)
	stayed := make(chan struct{})
	defer func() { end(); <-stayed }()
	context.AfterFunc(ended, func() { l.Close() })
	go func() {
		defer close(stayed)
		stay(ended, far, kept, say)
		end()
	}()
	room := make(chan struct{}, maxPrograms)
	for {
		program, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return errors.New("proxy: ssh has ended, and then all links to the far side were lost for too long; start it again")
		case err != nil:
			time.Sleep(100 * time.Millisecond) // out of file descriptors, for instance
			continue
		}
		select {
		case room <- struct{}{}:
		case <-ended.Done():
			program.Close()
			continue
		}
		go func() {
			defer func() { <-room }()
			defer program.Close()
			if err := carry(ctx, program, far, watch); err != nil && ctx.Err() == nil { // hundreds may end with the proxy
				say("proxy: " + err.Error())
			}
		}()
	}
}

// ready says where the proxy is. The address is last.
func ready(at net.Addr) string {
	if at, ok := at.(*net.TCPAddr); ok && at.IP.IsLoopback() {
		return fmt.Sprintf("SOCKS5 and HTTP proxy at %v", at)
	}
	return fmt.Sprintf("SOCKS5 and HTTP proxy, open to other hosts, at %v", at)
}

// stay keeps a connection with the far side, which ends when ssh has and it has none. It returns when that is so, or ctx ends.
func stay(ctx context.Context, far *ssh.Far, kept *stripe.Conn, say func(string)) {
	defer func() { kept.Abort() }()
	ended := far.Ended()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			ended = nil
			say("proxy: ssh has ended; going on without it")
			continue
		case <-kept.Done(): // all links were away for too long
		}
		select {
		case <-ctx.Done():
			return
		case <-far.Ended():
			return
		case <-time.After(time.Second):
		}
		if c, err := reach(ctx, "", far); err == nil {
			kept = c
		}
	}
}

// carry serves one program.
func carry(ctx context.Context, program net.Conn, far *ssh.Far, watch func(*stripe.Conn)) error {
	if err := program.SetDeadline(time.Now().Add(askTime)); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: program, N: askBytes}
	r := bufio.NewReader(limited)
	target, answer, err := asked(r, program)
	switch {
	case errors.Is(err, errNothing):
		return nil // a browser's in reserve, or somebody who looks whether the port is open
	case err != nil:
		return fmt.Errorf("%v: %w", program.RemoteAddr(), err)
	}
	limited.N = math.MaxInt64
	if err := program.SetDeadline(time.Time{}); err != nil {
		return err
	}
	conn, err := reach(ctx, target, far)
	if e := answer(err); err != nil || e != nil {
		if err == nil { // the program has given up meanwhile
			conn.Abort()
		}
		return errors.Join(err, e)
	}
	if watch != nil {
		watch(conn)
	}
	relay(begun{program.(tcp), r}, conn)
	return nil
}

// begun is a connection of which something has been read ahead.
type begun struct {
	tcp
	r *bufio.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.r.Read(p) }

// reach has the far side connect to a target; without one, the connection is only there.
func reach(ctx context.Context, target string, far *ssh.Far) (*stripe.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, err := far.Dial(ctx)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(connectTime + askTime))
	if err = ask(conn, target); err != nil {
		conn.Abort()
		return nil, fmt.Errorf("%s: %w", printable.Text(target), err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// ask sends the target, a length of 2 bytes before it, and waits for the answer of the same form: nothing, or [why] not.
func ask(conn io.ReadWriter, target string) error {
	if err := writeText(conn, target); err != nil {
		return err
	}
	answer, err := readText(conn)
	if err == nil && answer != "" {
		err = why(answer)
	}
	return err
}

func writeText(w io.Writer, text string) error {
	text = text[:min(len(text), 1000)]
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	return err
}

func readText(r io.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(r, b)
	return string(b), err
}

// Serve is the far side of one connection.
func Serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askTime))
	target, err := readText(conn)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if target == "" {
		_ = writeText(conn, "")
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	to, err := net.DialTimeout("tcp", target, connectTime)
	if err != nil {
		_ = writeText(conn, string(whyOf(err)))
		return
	}
	defer to.Close()
	if writeText(conn, "") == nil {
		relay(to.(tcp), conn.(*stripe.Conn))
	}
}

// half is a connection either direction of which can end first.
type half interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// tcp is one that can be reset, too.
type tcp interface {
	half
	SetLinger(seconds int) error
}

// relay copies both ways until both directions have ended, or one has failed. A direction that has not ended is reset: what is cut
// off must not look whole to who goes by the end of the stream.
func relay(a tcp, b *stripe.Conn) {
	toA, toB := make(chan bool, 1), make(chan bool, 1)
	one := func(to, from half, whole chan<- bool) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		whole <- err == nil
	}
	go one(a, b, toA)
	go one(b, a, toB)
	var wholeA, wholeB bool
	select {
	case wholeA = <-toA:
		if !wholeA {
			break
		}
		select {
		case wholeB = <-toB:
		case <-b.Done(): // a may never say anything, to which it would show
		}
	case wholeB = <-toB:
		wholeA = wholeB && <-toA
	}
	if !wholeA {
		_ = a.SetLinger(0)
	} else if wholeB {
		_ = b.Flush() // who reads at the other end may pause
	}
	a.Close()
	if wholeB {
		b.Close()
		return
	}
	_ = b.SetWriteDeadline(time.Now().Add(resetTime))
	_ = b.Flush()
	b.Abort()
}
