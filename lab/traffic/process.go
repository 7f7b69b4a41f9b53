package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

const (
	// killAfter is how long a program has between SIGTERM and SIGKILL.
	killAfter = time.Second
	// readyPoll is how often a server is asked whether it is ready, for no longer than readyLimit.
	readyPoll  = 10 * time.Millisecond
	readyLimit = 10 * time.Second
)

// tail keeps the last bytes written to it.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	return len(p), nil
}

// process is a program of another's making, in a namespace and a process group of its own.
type process struct {
	*exec.Cmd
	ns     string
	stderr tail
}

// program prepares a program; the end of ctx ends it and all it started, with SIGTERM.
func program(ctx context.Context, ns, name string, args ...string) *process {
	p := &process{Cmd: exec.CommandContext(ctx, name, args...), ns: ns, stderr: tail{limit: 2000}}
	p.Stderr = &p.stderr
	p.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	p.Cancel = func() error { return unix.Kill(-p.Process.Pid, unix.SIGTERM) }
	p.WaitDelay = killAfter
	return p
}

// start starts the program in its namespace.
func (p *process) start() error {
	if err := netns.Do(p.ns, p.Start); err != nil {
		return fmt.Errorf("start %s in %s: %w", p.Args[0], p.ns, err)
	}
	return nil
}

// finish waits for the program and leaves nothing of its group behind. The error holds the end of what it said.
func (p *process) finish() error {
	err := p.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = errors.New("it left a process in the background that holds its standard output or error; send both elsewhere, or let it wait for that process")
	}
	if killed := unix.Kill(-p.Process.Pid, unix.SIGKILL); killed != nil && !errors.Is(killed, unix.ESRCH) {
		err = errors.Join(err, killed)
	}
	if err != nil {
		return fmt.Errorf("run %s in %s: %w%s", p.Args[0], p.ns, err, p.said())
	}
	return nil
}

// said is the end of the program's standard error, or, where that is empty, of the output that is kept: iperf3 -J has its errors there.
func (p *process) said() string {
	said := p.stderr.kept
	if out, kept := p.Stdout.(*limited); kept && len(bytes.TrimSpace(said)) == 0 {
		said = out.Bytes()[max(0, out.Len()-p.stderr.limit):]
	}
	if said = bytes.TrimSpace(said); len(said) == 0 {
		return ""
	}
	return ": " + string(said)
}

// server is a program that runs until it is stopped.
type server struct {
	*process
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has
	err    error         // why it ended, then
}

// serve starts a server. cancel ends the context it was prepared with.
func (p *process) serve(cancel context.CancelFunc) (*server, error) {
	if err := p.start(); err != nil {
		cancel()
		return nil, err
	}
	s := &server{process: p, cancel: cancel, ended: make(chan struct{})}
	go func() {
		s.err = p.finish()
		close(s.ended)
	}()
	return s, nil
}

// stop ends the server. It returns an error if the server had failed.
func (s *server) stop() error {
	s.cancel()
	<-s.ended
	status := s.ProcessState.Sys().(syscall.WaitStatus)
	if s.ProcessState.Success() || status.Signaled() && status.Signal() == unix.SIGTERM {
		return nil
	}
	return s.err
}

// pause waits for d, unless ctx is done or the server ends before.
func (s *server) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return errors.Join(fmt.Errorf("wait for %s at %s: it ended before the client began", s.Args[0], s.ns), s.err)
	}
}
