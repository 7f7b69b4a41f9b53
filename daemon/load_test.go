package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/lab/netns"
	"plait.dev/plait/signals"
)

// loadPort is where the servers of these tests listen.
const loadPort = 5400

// ends are the two ends of a connection, without what Go's net puts around them: there are very many.
type ends struct{ client, server int }

func (e ends) close() error { return errors.Join(unix.Close(e.server), unix.Close(e.client)) }

// burst sends n bytes from the server and waits until they are there.
func (e ends) burst(b []byte) error {
	if _, err := unix.Write(e.server, b); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	for got := 0; got < len(b); {
		n, err := unix.Read(e.client, b[got:])
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		got += n
	}
	return nil
}

// server listens on 127.0.network.1, so that each network is a destination prefix of its own.
type server struct {
	fd      int
	address unix.SockaddrInet4
}

func newServer(network int) (s server, err error) {
	s.address = unix.SockaddrInet4{Port: loadPort, Addr: [4]byte{127, 0, byte(network), 1}}
	s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(s.fd, &s.address), unix.Listen(s.fd, 16))
	}
	return s, err
}

// connect makes one connection; over loopback it stands when connect(2) returns.
func (s server) connect() (e ends, err error) {
	if e.client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return e, err
	}
	from := s.address // the client is of the same prefix: both ends are counted there
	from.Port = 0
	// without it the port would be chosen before it is known whereto
	err = unix.SetsockoptInt(e.client, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err == nil {
		err = errors.Join(unix.Bind(e.client, &from), unix.Connect(e.client, &s.address))
	}
	if err == nil {
		e.server, _, err = unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
	}
	if err != nil {
		return e, errors.Join(fmt.Errorf("connect: %w", err), unix.Close(e.client))
	}
	return e, nil
}

// churn opens connections one after the other on each of some threads, sends 1000 bytes over each, and closes it.
func (h *host) churn(threads int, d time.Duration) (connections int) {
	h.Helper()
	end := time.Now().Add(d)
	var all sync.WaitGroup
	var n atomic.Int64
	for t := range threads {
		all.Go(func() {
			err := netns.Do(h.ns, func() error {
				var servers []server // several, for there are not ports enough for one
				for i := range 25 {
					s, err := newServer(25*t + i)
					if err != nil {
						return err
					}
					defer unix.Close(s.fd)
					servers = append(servers, s)
				}
				b := make([]byte, 1000)
				for i := 0; time.Now().Before(end); i++ {
					e, err := servers[i%len(servers)].connect()
					if err != nil {
						return err
					}
					if err := errors.Join(e.burst(b), e.close()); err != nil {
						return err
					}
					n.Add(1)
				}
				return nil
			})
			if err != nil {
				h.Error(err)
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// holderVariable makes this program a process that holds connections: number of the process, connections, bursts per second.
const holderVariable = "PLAIT_TEST_HOLDER"

func init() {
	if text := os.Getenv(holderVariable); text != "" {
		if err := holderMain(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// holderMain opens its connections, says so, sends a burst on each, says so, and goes on in turn until its input ends.
func holderMain(text string) error {
	var process, n, rate int
	if _, err := fmt.Sscan(text, &process, &n, &rate); err != nil {
		return err
	}
	var servers [8]server
	for i := range servers {
		var err error
		if servers[i], err = newServer(len(servers)*process + i); err != nil {
			return err
		}
	}
	all := make([]ends, n)
	for i := range all {
		var err error
		if all[i], err = servers[i%len(servers)].connect(); err != nil {
			return err
		}
	}
	fmt.Println("open")
	b := make([]byte, 10_000)
	for _, e := range all {
		if err := e.burst(b); err != nil {
			return err
		}
	}
	fmt.Println("sent")
	over := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(over) }()
	begin, sent := time.Now(), 0
	for {
		select {
		case <-over:
			fmt.Println(sent)
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		for ; sent < int(time.Since(begin).Seconds()*float64(rate)); sent++ {
			if err := all[sent%n].burst(b); err != nil {
				return err
			}
		}
	}
}

// entries is how many entries plait's map of that name has.
func (h *host) entries(name string) (n int) {
	h.Helper()
	m := h.mapOf(name)
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	for it := m.Iterate(); it.Next(&key, &value); {
		n++
	}
	return n
}

// memory is a line of /proc/PID/status in bytes: VmRSS, or VmHWM, the most it was.
func (h *host) memory(p *process, line string) int {
	h.Helper()
	return h.kilobytes(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), line)
}

// kilobytes is a line "name: N kB" of a file, in bytes.
func (h *host) kilobytes(path, name string) int {
	h.Helper()
	text, err := os.ReadFile(path)
	h.must(err)
	_, rest, _ := strings.Cut("\n"+string(text), "\n"+name+":")
	n, err := strconv.Atoi(strings.Fields(rest + " none")[0])
	h.must(err)
	return n << 10
}

// settled checks what a load must leave behind: nothing.
func (h *host) settled(p *process, connections int) {
	h.Helper()
	h.eventually(20*time.Second, "the daemon remembers no closed connection", func() bool { return len(h.status(p).Sockets) == 0 })
	if n := h.entries("plait_choices"); n != 0 {
		h.Errorf("%d choices are left of closed connections", n)
	}
	c := h.status(p).Counters
	if c["attached"]+c["held_out"] != uint64(2*connections) || c["refused"] != 0 || c["fell_back"] != 0 {
		h.Errorf("counters %v, want %d attached or held out, and no trouble", c, 2*connections)
	}
}

// Connections come and go while plait chooses for them: nothing is left of them, and one that stays comes back.
func TestComeAndGo(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll + "\n  policy: rtcp")
	stays := h.connect(0, "")
	n := 1 + h.churn(2, 2*time.Second)
	var slow []ends
	h.in(func() error {
		s, err := newServer(1)
		if err != nil {
			return err
		}
		defer unix.Close(s.fd)
		for range 100 {
			e, err := s.connect()
			if err != nil {
				return err
			}
			slow = append(slow, e)
		}
		return nil
	})
	b := make([]byte, 20000)
	for range 10 {
		for _, e := range slow {
			h.must(e.burst(b))
		}
		time.Sleep(100 * time.Millisecond)
	}
	h.eventually(20*time.Second, "there are choices to forget", func() bool { return h.entries("plait_choices") > 0 })
	for _, e := range slow {
		h.must(e.close())
	}
	h.settled(p, n+len(slow))
	h.uses("the one that stays", stays, bpf.Name, bpf.Name)
	_, err := p.Stop(t.Context())
	h.must(err)
	h.uses("the one that stays, after down", stays, systemDefault, systemDefault)
	h.clean("after down")
}

// A connection whose choice the daemon has forgotten begins anew with what its policy begins with, as the daemon takes it to.
func TestForgottenChoice(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll + "\n  policy: fixed:reno")
	c := h.connect(0, "")
	uses := func(when, algorithm string) {
		t.Helper()
		h.eventually(10*time.Second, when, func() bool {
			h.transfers(when, c)
			return slices.ContainsFunc(h.status(p).Sockets, func(s SocketStatus) bool {
				return s.Local.String() == c.server.LocalAddr().String() && s.Algorithm == algorithm
			})
		})
	}
	uses("what the policy begins with", "reno")
	choices := h.mapOf("plait_choices")
	for _, s := range h.status(p).Sockets {
		h.must(choices.Put(s.Cookie, bpf.Choice{Algorithm: uint8(signals.BIC), Bulk: uint8(signals.BIC)}))
	}
	uses("a choice is there", "bic")
	for _, s := range h.status(p).Sockets {
		h.must(choices.Delete(s.Cookie))
	}
	uses("the choice is forgotten", "reno")
}
