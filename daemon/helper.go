package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/egress/route"
)

// HelperArgument makes this program a helper (Helper); the argument exitsArgument behind it says that there are BGP exits.
const (
	HelperArgument = "daemon-helper"
	exitsArgument  = "exits"
)

// What a helper inherits, as file descriptors: a socket to the daemon, the program that visits sockets, and the locks, so that no other plait comes up before
// the helper has ended.
const (
	helperSocket = 3 + iota
	helperProgram
)

// What is said on the socket, a byte each: the daemon asks for a visit, the helper says when it has visited a namespace and when all.
const (
	askVisit = 'v'
	saysOne  = '.'
	saysAll  = '!'
)

var errHelperGone = errors.New("the helper process of plait is gone: see the log; plait ends, to be started anew")

// How long the helper may visit one namespace, and how long when plait goes down: connections it does not reach then leave by themselves.
const (
	helperPatience = 30 * time.Second
	lastPatience   = 10 * time.Second
)

// helper is a process beside the daemon, the same program. It keeps the rights that the daemon, which listens to the network, gives up, and visits other
// network namespaces for it. It outlives the daemon, and sees to it that packets of BGP exits take the best path when nobody follows BGP any more.
type helper struct {
	cmd    *exec.Cmd
	socket *os.File
	ended  chan struct{} // closed when the process has
	// patience is how long it may say nothing while something is asked of it. Then it is killed: everybody waits for it, and later answers would be to another question.
	patience time.Duration
}

// startHelper runs one that holds the locks, too.
func startHelper(locks []*os.File, visitor *ebpf.Program, exits bool) (*helper, error) {
	failed := func(err error) (*helper, error) { return nil, fmt.Errorf("start the helper process: %w", err) }
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // to read with a deadline
	if err != nil {
		return failed(err)
	}
	own, theirs := os.NewFile(uintptr(ends[0]), "helper"), os.NewFile(uintptr(ends[1]), "daemon")
	defer theirs.Close() // or the helper's death would not be seen
	program, err := unix.FcntlInt(uintptr(visitor.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return failed(errors.Join(err, own.Close()))
	}
	copied := os.NewFile(uintptr(program), "program")
	defer copied.Close()
	h := &helper{cmd: exec.Command("/proc/self/exe", HelperArgument), socket: own, ended: make(chan struct{}), patience: helperPatience}
	if exits {
		h.cmd.Args = append(h.cmd.Args, exitsArgument)
	}
	h.cmd.Args[0] = os.Args[0]
	h.cmd.Dir, h.cmd.Stderr = "/", os.Stderr // the file itself: it outlives the daemon, and so must what it says
	h.cmd.ExtraFiles = append([]*os.File{theirs, copied}, locks...)
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := h.cmd.Start(); err != nil {
		return failed(errors.Join(err, own.Close()))
	}
	go func() { _ = h.cmd.Wait(); close(h.ended) }()
	return h, nil
}

// visit makes the helper visit the sockets of all other network namespaces. It is for one goroutine at a time.
func (h *helper) visit() error {
	if _, err := h.socket.Write([]byte{askVisit}); err != nil {
		return errHelperGone
	}
	for said := []byte{0}; said[0] != saysAll; {
		_ = h.socket.SetReadDeadline(time.Now().Add(h.patience)) // a socket has deadlines
		_, err := h.socket.Read(said)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h.kill()
			return fmt.Errorf("the helper process of plait has said nothing for %v, and was killed; plait ends, to be started anew", h.patience)
		}
		if err != nil {
			return errHelperGone
		}
	}
	return nil
}

// kill ends a process that hangs, and does not wait for that.
func (h *helper) kill() { _ = h.cmd.Process.Kill() } // it may have ended

// watch returns when ctx ends, or the helper does: then it is missed.
func (h *helper) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-h.ended:
		return errHelperGone
	}
}

// hurry is for a plait that goes down: one that hangs is waited for less long. Without one there is nothing to do.
func (h *helper) hurry() {
	if h != nil {
		h.patience = min(h.patience, lastPatience)
	}
}

// end waits until the helper has ended. Without one there is nothing to do.
func (h *helper) end() error {
	if h == nil {
		return nil
	}
	err := h.socket.Close()
	select {
	case <-h.ended:
	case <-time.After(h.patience):
		h.kill()
		<-h.ended
	}
	return err
}

// release lets packets of the exits' addresses take the best path.
func release(log io.Writer) error {
	k, err := route.Open(route.Config{Journal: func(s route.Step) { fmt.Fprintln(log, "egress: plait ended:", s) }})
	if err != nil {
		return err
	}
	defer k.Close()
	return k.Release()
}

// Helper is the helper process, which logs to to; its arguments follow HelperArgument. It returns the exit status.
func Helper(to io.Writer, arguments []string) int {
	log := newSpool(to)
	defer log.Close()
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) // it ends with the daemon, and not before
	err := keep(helperKeeps)
	daemon := os.NewFile(helperSocket, "daemon")
	var program *ebpf.Program
	if err == nil {
		program, err = ebpf.NewProgramFromFD(helperProgram)
	}
	for asked := []byte{0}; err == nil; {
		if _, gone := daemon.Read(asked); gone != nil {
			break
		}
		say := func(what byte) { _, _ = daemon.Write([]byte{what}) } // nobody listens any more: the next read says so
		elsewhere(program, func() { say(saysOne) })
		say(saysAll)
	}
	if len(arguments) > 0 && arguments[0] == exitsArgument {
		err = errors.Join(err, release(log))
	}
	if err != nil {
		fmt.Fprintln(log, "plait helper:", err)
		return 1
	}
	return 0
}
