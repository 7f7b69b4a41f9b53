// Package pipe runs a command on another host, with its standard input, output and error over all links of both.
package pipe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh"
)

// What comes back is blocks: length (4 bytes, big-endian), output. In a block whose length has the bit complaint it is of standard error: over ssh it would be lost with ssh, and
// the command would wait where ssh's one link is gone. A block of length 0 is the end, and one byte with the command's exit status follows.

const complaint = 1 << 31

// statusUnknown is told for a command that did not end by itself, as shells do.
const statusUnknown = 255

// Run runs a shell command on a host and returns its exit status. Its standard error goes to complaints, as far as these are taken, in its order with what went to out: while that takes nothing, nor do they come. watch, if not nil, sees the connection before any data flows. Where ctx ends it, a write to an out that takes
// nothing may still wait.
func Run(ctx context.Context, host, command string, in io.Reader, out, complaints io.Writer, opt ssh.Options, watch func(*stripe.Conn)) (status int, err error) {
	opt.Run = command
	conn, err := ssh.Dial(ctx, host, opt)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if watch != nil {
		watch(conn.Conn)
	}
	go func() { // it may wait for input when the command has long ended
		from := &input{Reader: in}
		_, err := io.Copy(conn, from)
		switch {
		case from.err != nil: // the command would wait for the rest for ever
			stop(fmt.Errorf("read standard input: %w; give another one, such as < /dev/null", from.err))
		case err == nil:
			_ = conn.CloseWrite()
		}
	}()
	deaf := newHeedless(complaints)
	ended := make(chan struct{})
	var got int
	var failed error
	go func() { defer close(ended); got, failed = unpack(out, deaf, conn) }()
	select {
	case <-ended:
		status, err = got, failed
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	conn.Abort() // everything has come; what the command did not read is of no use
	return status, err
}

// input tells why reading failed from why writing did.
type input struct {
	io.Reader
	err error
}

func (in *input) Read(p []byte) (int, error) {
	n, err := in.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		in.err = err
	}
	return n, err
}

// unpack copies blocks to out, or complaints, until the end.
func unpack(out, complaints io.Writer, from io.Reader) (status int, err error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return 0, err
		}
		n, to := binary.BigEndian.Uint32(head[:]), out
		if n == 0 {
			_, err := io.ReadFull(from, head[:1])
			return int(head[0]), err
		}
		if n&complaint != 0 {
			to = complaints
		}
		if _, err := io.CopyN(to, from, int64(n&^complaint)); err != nil {
			return 0, err
		}
	}
}

// heedless is a writer to which it makes no difference that nobody takes what is written any more.
type heedless struct{ io.Writer }

// newHeedless writes to w; to a file, by another descriptor of it: where a pipe has lost its reader, writing to the descriptor 2 would end this process.
func newHeedless(w io.Writer) heedless {
	if f, is := w.(*os.File); is {
		if fd, err := syscall.Dup(int(f.Fd())); err == nil {
			syscall.CloseOnExec(fd)
			w = os.NewFile(uintptr(fd), f.Name())
		}
	}
	return heedless{w}
}

func (h heedless) Write(p []byte) (int, error) {
	_, _ = h.Writer.Write(p)
	return len(p), nil
}

// blocks makes blocks of what is written, each in one write: a length by itself would be sent by itself, perhaps over another link.
type blocks struct {
	to   io.Writer
	kind uint32 // 0 or complaint
	buf  []byte
}

func (b *blocks) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.buf = append(binary.BigEndian.AppendUint32(b.buf[:0], b.kind|uint32(len(p))), p...)
	if _, err := b.to.Write(b.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Serve is the other end: it runs the command. An error is that the command could not be begun.
func Serve(conn *stripe.Conn, command string) error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	defer in.Close()
	guard, err := begin(stdin)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &blocks{to: conn}, &blocks{to: conn, kind: complaint}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: guard.group()}
	if err := cmd.Start(); err != nil {
		guard.end()
		return err
	}
	in.Close() // who writes must hear that nobody reads
	go func() {
		if _, err := io.Copy(stdin, conn); err == nil { // a command may close its input and go on
			guard.letEnd()
			stdin.Close() // not of what was cut off: the command might take it for whole before it is killed
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-conn.Done(): // nobody reads what it says, nor what its children do; one in a session of its own may have the output open for long
		_ = syscall.Kill(-guard.group(), syscall.SIGKILL)
		guard.end()
		return nil
	case err = <-ended:
	}
	status := byte(0)
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && failed.ExitCode() >= 0:
		status = byte(failed.ExitCode())
	case err != nil:
		status = statusUnknown
	}
	guard.end()
	_, err = conn.Write([]byte{0, 0, 0, 0, status})
	if err == nil && conn.Flush() == nil { // who reads the output may pause, links may be gone for minutes
		conn.Close()
	}
	return nil // the near side has ended, or says itself that the connection is lost
}
