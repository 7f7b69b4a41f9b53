package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// The congestion controls of the hosts these tests make. Every kernel lets every namespace have reno as default; cubic is what
// applications choose.
const (
	systemDefault = "reno"
	otherChoice   = "cubic"
)

// daemonVariable makes this program the daemon with the configuration file it names.
const daemonVariable = "PLAIT_TEST_DAEMON"

// The main thread stays with the main goroutine: netns.Do on it would leave it, and with it this process, in a test's namespace.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == HelperArgument {
		os.Exit(Helper(os.Stderr, os.Args[2:]))
	}
	if path := os.Getenv(daemonVariable); path != "" {
		os.Exit(daemonMain(path))
	}
	if path := os.Getenv(acksVariable); path != "" {
		os.Exit(acksMain(path))
	}
	os.Exit(m.Run())
}

// daemonMain is what plait up runs, without its command line.
func daemonMain(path string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	c, err := ReadConfig(path)
	if err == nil {
		err = Run(ctx, c, Options{ConfigPath: path, Version: "test", Log: os.Stderr, Ready: func() { fmt.Println("ready") }, Hangups: hangups})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// host is a network namespace with loopback and a cgroup (v2), both made for one test. Sockets are of the cgroup whose process
// makes them: the test's own process enters it.
type host struct {
	testing.TB
	ns, dir string // dir is for files, its name short enough for a control socket
	cgroup  string
	outside string         // the cgroup the test's process came from
	earlier ebpf.ProgramID // the newest BPF program of this machine when the host was made

	multipath bool // clients speak MPTCP
}

// newNamespace is a host of which a test needs the network alone.
func newNamespace(tb testing.TB) *host {
	tb.Helper()
	rung.Netns(tb)
	h := &host{TB: tb, ns: fmt.Sprintf("plait-daemon-%d", os.Getpid())}
	for id, err := h.earlier, error(nil); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		h.earlier = id
	}
	h.ip("netns add " + h.ns)
	tb.Cleanup(func() { h.ip("netns del " + h.ns) })
	h.ip("-n " + h.ns + " link set lo up")
	h.in(func() error { return os.WriteFile(current, []byte(systemDefault), 0) })
	return h
}

func newHost(tb testing.TB) *host {
	tb.Helper()
	h := newNamespace(tb)
	root, err := findCgroup()
	h.must(err)
	own, err := os.ReadFile("/proc/self/cgroup")
	h.must(err)
	_, path, found := strings.Cut("\n"+string(own), "\n0::")
	if !found {
		tb.Fatalf("this process is in no cgroup v2: %s", own)
	}
	path, _, _ = strings.Cut(path, "\n")
	h.outside = filepath.Join(root, path)
	h.dir, err = os.MkdirTemp("", "plait")
	h.must(err)
	tb.Cleanup(func() { os.RemoveAll(h.dir) })
	h.cgroup = filepath.Join(root, h.ns)
	h.must(os.Mkdir(h.cgroup, 0o755))
	tb.Cleanup(func() { // a daemon's helper ends by itself, and nobody waits for it
		h.eventually(10*time.Second, "the cgroup is empty", func() bool { return os.Remove(h.cgroup) == nil })
	})
	h.enter(h.cgroup)
	tb.Cleanup(func() { h.enter(h.outside) })
	h.eventually(30*time.Second, "the name is free: another plait is up on this machine", func() bool {
		if registered() { // on Linux before 6.4 by one that the test before has killed
			h.in(func() error {
				_, _ = Cleanup(filepath.Join(h.dir, "control"), true) // another plait that is up has the lock
				return nil
			})
		}
		return !registered()
	})
	return h
}

// second is the same host with another network namespace.
func (h *host) second(suffix string) *host {
	h.Helper()
	other := *h
	other.ns += suffix
	h.ip("netns add " + other.ns)
	h.Cleanup(func() { _ = exec.Command("ip", "netns", "del", other.ns).Run() }) // a test may have done it
	h.ip("-n " + other.ns + " link set lo up")
	other.in(func() error { return os.WriteFile(current, []byte(systemDefault), 0) })
	return &other
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) ip(arguments string) { h.Helper(); h.tool("ip " + arguments) }

// tool runs a command that must succeed.
func (h *host) tool(command string) {
	h.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		h.Fatalf("%s: %v: %s", command, err, out)
	}
}

// in runs f in the namespace.
func (h *host) in(f func() error) { h.Helper(); h.must(netns.Do(h.ns, f)) }

// enter moves the test's process into a cgroup.
func (h *host) enter(cgroup string) {
	h.Helper()
	h.must(os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0))
}

// eventually waits until something holds and returns how long that took.
func (h *host) eventually(within time.Duration, what string, holds func() bool) time.Duration {
	h.Helper()
	begin := time.Now()
	for {
		late := time.Since(begin) > within // before it looks: a pause of the test must not have it look too little
		if holds() {
			return time.Since(begin)
		}
		if late {
			h.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// process is a daemon.
type process struct {
	cmd *exec.Cmd
	*ControlClient
	config string // its file
	said   bytes.Buffer
}

// newProcess does not start it yet.
func newProcess(config, control string) *process {
	p := &process{cmd: exec.Command("/proc/self/exe"), ControlClient: Client(control), config: config}
	p.cmd.Env = append(os.Environ(), daemonVariable+"="+config)
	p.cmd.Stderr = &p.said
	return p
}

// write makes a configuration file: the lever's keys stand in congestion, indented by two blanks.
func (h *host) write(path, control, congestion string) {
	h.Helper()
	text := fmt.Sprintf("cgroup: %s\ncontrol: %s\nmetrics: off\ncongestion:\n%s\n", h.cgroup, control, congestion)
	h.must(os.WriteFile(path, []byte(text), 0o600))
}

// prepare is a daemon that is not started yet.
func (h *host) prepare(control, congestion string) *process {
	h.Helper()
	file, err := os.CreateTemp(h.dir, "*.yaml")
	h.must(err)
	file.Close()
	p := newProcess(file.Name(), control)
	h.write(p.config, control, congestion)
	return p
}

// ready starts a daemon and waits until it is up, or will not come up.
func (h *host) ready(p *process) bool {
	h.Helper()
	out, err := p.cmd.StdoutPipe()
	h.must(err)
	h.must(netns.Start(h.ns, p.cmd))
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line == "ready\n" {
		h.Cleanup(func() { p.kill() })
	}
	return line == "ready\n"
}

// try starts a daemon and waits until it is up; if it does not come up, the error is what it said.
func (h *host) try(control, congestion string) (*process, error) {
	h.Helper()
	p := h.prepare(control, congestion)
	if h.ready(p) {
		return p, nil
	}
	if err := p.cmd.Wait(); err == nil {
		h.Fatal("the daemon ended before it was ready, with status 0")
	}
	return nil, errors.New(strings.TrimSpace(p.said.String()))
}

func (h *host) up(congestion string) *process {
	h.Helper()
	p, err := h.try(filepath.Join(h.dir, "control"), congestion)
	h.must(err)
	return p
}

// kill ends the daemon without giving it a chance to clean up.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// cleanup is plait down after a daemon that was killed.
func (h *host) cleanup(p *process) (left Left) {
	h.Helper()
	h.in(func() (err error) {
		left, err = Cleanup(p.Path(), true)
		return err
	})
	return left
}

func (h *host) status(p *process) Status {
	h.Helper()
	s, err := p.Status()
	h.must(err)
	return s
}

// chosen sets the congestion control an application asks for; "" is an application that does not care.
func chosen(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if name == "" {
			return nil
		}
		if controlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		}); controlErr != nil {
			return controlErr
		}
		return err
	}
}

// pair is both ends of a connection over loopback: server's local port is known.
type pair struct{ client, server *net.TCPConn }

// connect makes a connection to a port (0 is any) by an application that asks for a congestion control at both ends.
func (h *host) connect(port int, choice string) pair {
	h.Helper()
	p, err := h.connectTo("127.0.0.1", port, h.ns, choice)
	h.must(err)
	h.Cleanup(p.close)
	return p
}

// connectTo listens in the host's namespace and connects from another.
func (h *host) connectTo(address string, port int, from, choice string) (p pair, err error) {
	var l net.Listener
	err = netns.Do(h.ns, func() (err error) {
		c := net.ListenConfig{Control: chosen(choice)}
		l, err = c.Listen(context.Background(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		return p, err
	}
	defer l.Close()
	err = netns.Do(from, func() error {
		d := net.Dialer{Control: chosen(choice), Timeout: 10 * time.Second}
		d.SetMultipathTCP(h.multipath)
		c, err := d.Dial("tcp", l.Addr().String())
		if err == nil {
			p.client = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return p, err
	}
	c, err := l.Accept()
	if err != nil {
		return p, err
	}
	p.server = c.(*net.TCPConn)
	patience := time.Now().Add(5 * time.Minute) // a connection that stands still fails its test
	return p, errors.Join(p.client.SetDeadline(patience), p.server.SetDeadline(patience))
}

func (p pair) close() { p.client.Close(); p.server.Close() }

// congestion is the congestion control in use at the two ends.
func (h *host) congestion(p pair) (client, server string) {
	h.Helper()
	var names [2]string
	for i, c := range []*net.TCPConn{p.client, p.server} {
		raw, err := c.SyscallConn()
		h.must(err)
		h.must(raw.Control(func(fd uintptr) {
			names[i], err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}))
		h.must(err)
	}
	return names[0], names[1]
}

// uses checks the congestion control at both ends.
func (h *host) uses(what string, p pair, client, server string) {
	h.Helper()
	if c, s := h.congestion(p); c != client || s != server {
		h.Errorf("%s: the client's end uses %s, the server's %s; want %s and %s", what, c, s, client, server)
	}
}

// pattern is what transfers carry, again and again; its length is prime, so that what is lost, doubled or moved shows.
var pattern = func() []byte {
	b := make([]byte, 65537)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// send writes n bytes of the pattern from where it was left at.
func send(to io.Writer, at, n int) error {
	for end := at + n; at < end; {
		offset := at % len(pattern)
		chunk := pattern[offset:min(len(pattern), offset+end-at)]
		if _, err := to.Write(chunk); err != nil {
			return err
		}
		at += len(chunk)
	}
	return nil
}

// receive reads n bytes and compares them with the pattern.
func receive(from io.Reader, at, n int) error {
	b := make([]byte, len(pattern))
	for end := at + n; at < end; {
		offset := at % len(pattern)
		chunk := b[:min(len(pattern)-offset, end-at)]
		if _, err := io.ReadFull(from, chunk); err != nil {
			return fmt.Errorf("after %d bytes: %w", at, err)
		}
		if !bytes.Equal(chunk, pattern[offset:offset+len(chunk)]) {
			return fmt.Errorf("other bytes than were sent arrive between %d and %d", at, at+len(chunk))
		}
		at += len(chunk)
	}
	return nil
}

// transfer sends n bytes from the server to the client and checks every one.
func transfer(p pair, n int) error {
	sent := make(chan error, 1)
	go func() { sent <- send(p.server, 0, n) }()
	return errors.Join(receive(p.client, 0, n), <-sent)
}

func (h *host) transfers(what string, p pair) {
	h.Helper()
	if err := transfer(p, 4<<20); err != nil {
		h.Errorf("%s: %v", what, err)
	}
}

// busy keeps sending on connections, and checks every byte, until what it returns is called.
func (h *host) busy(pairs []pair) (quiet func()) {
	_, quiet = h.keepSending(pairs, 64<<10, 5*time.Millisecond)
	return quiet
}

// keepSending sends a chunk on each connection, and another some time after that has arrived, and checks every byte, until quiet is called. arrived counts chunks.
func (h *host) keepSending(pairs []pair, chunk int, pause time.Duration) (arrived *atomic.Int64, quiet func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	arrived = new(atomic.Int64)
	for _, c := range pairs {
		all.Go(func() {
			for at := 0; ; at += chunk {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				sent := make(chan error, 1)
				go func() { sent <- send(c.server, at, chunk) }()
				if err := errors.Join(receive(c.client, at, chunk), <-sent); err != nil {
					h.Error(err)
					return
				}
				arrived.Add(1)
			}
		})
	}
	return arrived, func() { close(stop); all.Wait() }
}

// clean checks that nothing of this host's plait is left in the kernel: neither the name nor a program.
func (h *host) clean(what string) {
	h.Helper()
	if registered() {
		h.Errorf("%s: the kernel knows %s", what, bpf.Name)
	}
	defer func() {
		if h.Failed() {
			h.Logf("%s: left are %v", what, h.programs())
		}
	}()
	// The kernel frees them when every task has been off its processor, which a task that waits behind one of the lab's machines is late with.
	h.eventually(2*time.Minute, what+": no program of plait's is left", func() bool { return len(h.programs()) == 0 })
}
