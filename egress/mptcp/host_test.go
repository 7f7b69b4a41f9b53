package mptcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// The main thread stays with the main goroutine: netns.Do on it would leave it, and with it this process, in a test's namespace.
func init() { runtime.LockOSThread() }

// world is a client and a server, joined by three links. The server's address on link 0 is its default address, those on the others are its
// EPE addresses.
type world struct {
	testing.TB
	client, server string // namespaces

	mu    sync.Mutex
	exits []ExitAddress // that reach the client
}

const links = 3

// newWorld makes the namespaces; each link carries the given rate from server to client.
func newWorld(t testing.TB, rate string) *world {
	rung.Netns(t)
	name := fmt.Sprintf("plait-mptcp-%d-%d", os.Getpid(), rand.Uint32N(1<<16))
	w := &world{TB: t, client: name + "c", server: name + "s"}
	for _, ns := range []string{w.client, w.server} {
		w.run("ip", "netns", "add", ns)
		t.Cleanup(func() { w.run("ip", "netns", "del", ns) })
		w.run("ip", "-n", ns, "link", "set", "lo", "up")
		w.run("ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	}
	for i := range links {
		c, s := fmt.Sprintf("c%d", i), fmt.Sprintf("s%d", i)
		w.run("ip", "-n", w.client, "link", "add", c, "type", "veth", "peer", "name", s, "netns", w.server)
		for ns, end := range map[string]int{w.client: 1, w.server: 2} {
			dev := map[int]string{1: c, 2: s}[end]
			w.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("10.77.%d.%d/24", i, end), "dev", dev)
			w.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("fd77:0:0:%d::%d/64", i, end), "dev", dev, "nodad")
			w.run("ip", "-n", ns, "link", "set", dev, "up")
		}
		if rate != "" {
			w.run("tc", "-n", w.server, "qdisc", "add", "dev", s, "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms")
		}
	}
	w.run("ip", "-n", w.client, "mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4")
	w.in(w.server, func() error {
		saved := filepath.Join(t.TempDir(), "path_manager")
		t.Cleanup(func() { w.in(w.server, func() error { return TurnOff(saved) }) })
		return TurnOn(saved)
	})
	return w
}

func (w *world) run(name string, args ...string) {
	w.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		w.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func (w *world) in(ns string, f func() error) {
	w.Helper()
	if err := netns.Do(ns, f); err != nil {
		w.Fatal(err)
	}
}

func exitAddr(link int, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: byte(link), 15: 2})
	}
	return netip.AddrFrom4([4]byte{10, 77, byte(link), 2})
}

// reach sets which links reach the client, in both families.
func (w *world) reach(exits ...int) {
	var all []ExitAddress
	for _, i := range exits {
		all = append(all, ExitAddress{Addr: exitAddr(i, false)}, ExitAddress{Addr: exitAddr(i, true)})
	}
	w.reachExactly(all...)
}

func (w *world) reachExactly(exits ...ExitAddress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exits = exits
}

func (w *world) reachable(Peer) []ExitAddress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.exits)
}

// serve runs a Service on the server. stop ends it and returns when it is gone.
func (w *world) serve() (s *Service, stop func()) {
	w.Helper()
	config := Config{Reachable: w.reachable, Log: slog.New(slog.NewTextHandler(w.Output(), nil))}
	for i := 1; i < links; i++ {
		config.Exits = append(config.Exits, exitAddr(i, false), exitAddr(i, true))
	}
	w.in(w.server, func() (err error) {
		s, err = Open(config)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- netns.Do(w.server, func() error { return s.Run(ctx) }) // sock_diag is opened in Run
	}()
	stop = sync.OnceFunc(func() {
		if w.Failed() {
			w.Logf("status %+v", s.Status())
		}
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return s, stop
}

// listen starts the application: every connection gets n bytes of the stream with its number as seed, which the client sends first.
func (w *world) listen(network, address string) {
	w.Helper()
	var l net.Listener
	w.in(w.server, func() (err error) {
		config := net.ListenConfig{}
		config.SetMultipathTCP(true)
		l, err = config.Listen(context.Background(), network, address)
		return err
	})
	w.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var request [16]byte
				if _, err := io.ReadFull(c, request[:]); err != nil {
					return
				}
				seed, n := string(request[:8]), request[8:]
				size, _ := strconv.ParseInt(strings.TrimSpace(string(n)), 10, 64)
				_, _ = io.CopyN(c, stream(seed), max(size, -size))
				if size > 0 {
					_ = c.(*net.TCPConn).CloseWrite()
				}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
}

func stream(seed string) io.Reader {
	var key [32]byte
	copy(key[:], seed)
	return rand.NewChaCha8(key)
}

// download is a connection whose bytes are compared as they come.
type download struct {
	*world
	conn *net.TCPConn
	want io.Reader
	size int64

	mu       sync.Mutex
	received int64
	done     chan struct{}
	err      error
}

// fetch begins to download size bytes. If it is negative, the server sends so many and keeps the connection.
func (w *world) fetch(address string, size int64, multipath bool) *download {
	w.Helper()
	d := &download{world: w, size: size, done: make(chan struct{})}
	w.in(w.client, func() error {
		dialer := net.Dialer{Timeout: 20 * time.Second}
		dialer.SetMultipathTCP(multipath)
		c, err := dialer.Dial("tcp", address)
		if err != nil {
			return err
		}
		d.conn = c.(*net.TCPConn)
		return nil
	})
	seed := fmt.Sprintf("%8d", rand.Uint32N(1e7))
	d.want = stream(seed)
	if _, err := fmt.Fprintf(d.conn, "%s%8d", seed, size); err != nil {
		w.Fatal(err)
	}
	go d.runReceive()
	w.Cleanup(func() { d.conn.Close() })
	return d
}

func (d *download) runReceive() {
	defer close(d.done)
	defer d.conn.Close()
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := d.conn.Read(got)
		_, _ = io.ReadFull(d.want, want[:n])
		d.mu.Lock()
		if !bytes.Equal(got[:n], want[:n]) {
			d.err = fmt.Errorf("wrong byte within %d after %d", n, d.received)
		}
		d.received += int64(n)
		if err != nil && !errors.Is(err, io.EOF) {
			d.err = err
		}
		end := err != nil || d.err != nil
		d.mu.Unlock()
		if end {
			return
		}
	}
}

func (d *download) progress() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.received
}

// more waits until so many more bytes have come.
func (d *download) more(n int64) {
	d.Helper()
	end := d.progress() + n
	d.until("more bytes", func() bool { return d.progress() >= end })
}

// finish waits for the end, or for all bytes of a connection that is kept, and fails the test unless every byte came.
func (d *download) finish() {
	d.Helper()
	if d.size < 0 {
		d.until("all bytes", func() bool { return d.progress() >= -d.size })
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.err != nil || d.received != -d.size {
			d.Fatalf("got %d of %d bytes: %v", d.received, -d.size, d.err)
		}
		return
	}
	select {
	case <-d.done:
	case <-time.After(120 * time.Second):
		d.Fatalf("download stands at %d of %d bytes", d.progress(), d.size)
	}
	if d.err != nil || d.received != d.size {
		d.Fatalf("got %d of %d bytes: %v", d.received, d.size, d.err)
	}
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		late := time.Now().After(end) // before it looks, or a pause of the test fails it
		if holds() {
			return
		}
		if late {
			w.Fatalf("no %s after 60 s\n%s", what, w.sockets())
		}
	}
}

// sockets shows what the kernel has, for messages.
func (w *world) sockets() string {
	out, _ := exec.Command("ip", "netns", "exec", w.server, "sh", "-c", "ss -Mtnie 2>&1 | head -n 100").CombinedOutput() // of 20,000 connections enough
	mib, _ := exec.Command("ip", "netns", "exec", w.server, "nstat", "-asz").CombinedOutput()
	var counters []string
	for _, line := range strings.Split(string(mib), "\n") {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "MPTcp") && f[1] != "0" {
			counters = append(counters, f[0]+" "+f[1])
		}
	}
	return string(out) + strings.Join(counters, "\n")
}

// counter reads one of the kernel's, by nstat's name.
func (w *world) counter(ns, name string) (n int64) {
	w.Helper()
	out, err := exec.Command("ip", "netns", "exec", ns, "nstat", "-asz", name).Output()
	if err != nil {
		w.Fatal(err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return n
}

// sent is how many bytes the server has sent on a link.
func (w *world) sent(link int) int64 {
	w.Helper()
	var n int64
	w.in(w.server, func() error {
		out, err := exec.Command("ip", "netns", "exec", w.server, "cat", fmt.Sprintf("/sys/class/net/s%d/statistics/tx_bytes", link)).Output()
		if err == nil {
			n, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		}
		return err
	})
	return n
}

// drained waits until a link has nothing left in its queue: it says nothing of what comes after.
func (w *world) drained(link int) {
	w.Helper()
	w.until(fmt.Sprintf("empty queue on link %d", link), func() bool {
		out, err := exec.Command("tc", "-n", w.server, "-s", "qdisc", "show", "dev", fmt.Sprintf("s%d", link)).Output()
		if err != nil {
			w.Fatal(err)
		}
		return strings.Contains(string(out), "backlog 0b 0p")
	})
}

// subflows waits until the server's service knows of n subflows.
func (w *world) subflows(s *Service, n int) {
	w.Helper()
	w.until(fmt.Sprintf("%d subflows", n), func() bool {
		return s.Status().Subflows == n
	})
}
