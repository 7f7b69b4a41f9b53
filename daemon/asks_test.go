package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// Who alone wants plait asks for it, by socket or by route, on a host where all others are held out. Without plait neither can be had.
func TestAsks(t *testing.T) {
	h := newHost(t)
	other := h.second("-2")
	h.ip(fmt.Sprintf("link add name plait-asks netns %s type veth peer name plait-asks netns %s", h.ns, other.ns))
	for i, n := range []*host{h, other} {
		h.ip(fmt.Sprintf("-n %s addr add 192.0.2.%d/24 dev plait-asks", n.ns, i+1))
		h.ip("-n " + n.ns + " link set plait-asks up")
	}
	h.in(func() error {
		_, err := (&net.Dialer{Control: chosen(bpf.Name)}).Dial("tcp", "127.0.0.1:1")
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("asked for without plait: got %v, want %v", err, unix.ENOENT)
		}
		return nil
	})
	route := "ip -n " + h.ns + " route replace 192.0.2.2/32 dev plait-asks congctl plait"
	if out, err := exec.Command("sh", "-c", route).CombinedOutput(); err == nil || !strings.Contains(string(out), "Unknown tcp congestion algorithm") {
		t.Errorf("a route without plait: got %v, %s, want that the algorithm is unknown", err, out)
	}
	p := h.up("  holdout_percent: 100")
	h.tool(route)
	routed := func() pair {
		c, err := h.connectTo("192.0.2.1", 0, other.ns, "")
		h.must(err)
		h.Cleanup(c.close)
		return c
	}
	asks, byRoute, others := h.connect(0, bpf.Name), routed(), h.connect(0, "")
	h.uses("asks", asks, bpf.Name, bpf.Name)
	h.uses("by the sender's route", byRoute, systemDefault, bpf.Name)
	h.uses("all others", others, systemDefault, systemDefault)
	h.tool(strings.Replace(route, "congctl", "congctl lock", 1))
	locked := routed()
	for what, c := range map[string]pair{"asks": asks, "by route": byRoute, "others": others} {
		h.transfers(what, c)
	}
	h.eventually(20*time.Second, "the daemon chooses for both", func() bool {
		s := h.status(p).Sockets
		return !slices.ContainsFunc([]pair{asks, byRoute}, func(c pair) bool {
			return !slices.ContainsFunc(s, func(s SocketStatus) bool { return s.Local.String() == c.server.LocalAddr().String() })
		})
	})
	_, err := p.Stop(t.Context())
	h.must(err)
	h.uses("asks, after down", asks, systemDefault, systemDefault)
	h.uses("by route, after down", byRoute, systemDefault, systemDefault)
	h.uses("by a route that locks it, after down", locked, systemDefault, bpf.Name) // nobody may change it, plait neither
	if left := h.cleanup(p); left.Connections != 0 || left.Kept != 1 {
		t.Errorf("another plait down says %+v, want that one is kept", left)
	}
	h.uses("by route, new", routed(), systemDefault, systemDefault)
}

// An application may ask while it connects: the kernel begins with plait then, and not again when the connection is there.
func TestAsksWhileItConnects(t *testing.T) {
	rung.Netns(t)
	s := newSwitching(t, "burst", func(uint32, func()) bool { return false })
	var l net.Listener
	s.must(netns.Do(s.ns+"-client", func() (err error) {
		l, err = net.Listen("tcp", "10.3.0.2:0")
		return err
	}))
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // with something on the way a socket, and with it the kernel half, would be there for minutes
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	var fd int
	s.in(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		to := &unix.SockaddrInet4{Addr: [4]byte{10, 3, 0, 2}, Port: l.Addr().(*net.TCPAddr).Port}
		if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connected already: %w", err)
		}
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "plait")
	})
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	made, err := net.FileConn(f)
	s.must(err)
	c := made.(*net.TCPConn)
	defer func() {
		s.must(c.SetLinger(0))
		c.Close()
	}()
	s.eventually(10*time.Second, "it is connected", func() bool { return s.info(c).State == unix.BPF_TCP_ESTABLISHED })
	go func() { _ = send(c, 0, 4<<20) }()
	s.eventually(time.Minute, "its window grows", func() bool { return s.window(c) > 11 })
}
