package mptcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// BenchmarkManager is the life of a connection with four exits beside 20,000 others, without the kernel. One a millisecond is what it must bear;
// cpu-us/op times 0.1 is then the percentage of a core.
func BenchmarkManager(b *testing.B) {
	m, f, now := crowded(b)
	b.ReportAllocs()
	defer measureCPU(b)()
	for i := 0; b.Loop(); i++ {
		token := uint32(1e6 + i)
		client := netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)})
		now = now.Add(time.Millisecond)
		f.connections[token] = &Connection{}
		first := Subflow{Local: netip.MustParseAddrPort("192.0.2.1:80"), Remote: netip.AddrPortFrom(client, 1)}
		m.Handle(Event{Type: Created, Token: token, Server: true, Subflow: first}, now)
		m.Handle(Event{Type: Established, Token: token, Server: true, Subflow: first}, now)
		for j, a := range m.config.Exits {
			m.Handle(Event{Type: SubEstablished, Token: token, Subflow: Subflow{netip.AddrPortFrom(a, 80), netip.AddrPortFrom(client, uint16(j+2)), 40, false, false}}, now)
		}
		for j, a := range m.config.Exits {
			m.Handle(Event{Type: SubClosed, Token: token, Subflow: Subflow{netip.AddrPortFrom(a, 80), netip.AddrPortFrom(client, uint16(j+2)), 40, false, false}}, now)
		}
		m.Handle(Event{Type: Closed, Token: token}, now)
		m.Tick(now)
		delete(f.connections, token)
		delete(f.announced, token)
	}
}

// BenchmarkChanged is a BGP update of 1,000 prefixes that concern nobody, and BenchmarkChangedAll one that concerns all 20,000 clients, to whom the same
// exits are reachable as before.
func BenchmarkChanged(b *testing.B) {
	m, _, now := crowded(b)
	var prefixes []netip.Prefix
	for i := range 1000 {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 16+i%9).Masked())
	}
	defer measureCPU(b)()
	for b.Loop() {
		m.Changed(prefixes...)
		m.Tick(now)
	}
}

func BenchmarkChangedAll(b *testing.B) {
	m, _, now := crowded(b)
	defer measureCPU(b)()
	for b.Loop() {
		m.Changed()
		for len(m.queue[0]) > 0 {
			m.Tick(now)
		}
	}
}

// cpuUS is the processor time this process has used: what does not depend on what else the machine does.
func cpuUS() int64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // cannot happen with a valid address
	}
	return (used.Utime.Nano() + used.Stime.Nano()) / 1000
}

// measureCPU reports the processor time of each operation.
func measureCPU(b *testing.B) func() {
	begin := cpuUS()
	return func() { b.ReportMetric(float64(cpuUS()-begin)/float64(b.N), "cpu-us/op") }
}

// crowded is a manager with 20,000 connections and four exits.
func crowded(b *testing.B) (*Manager, *fake, time.Time) {
	f := newFake()
	f.silent = true
	config := Config{ChangesPerSecond: 1e9}
	var exits []ExitAddress
	for i := range byte(4) {
		a := netip.AddrFrom4([4]byte{192, 0, 2, 10 + i})
		config.Exits = append(config.Exits, a)
		exits = append(exits, ExitAddress{Addr: a})
	}
	config.Reachable = func(Peer) []ExitAddress { return exits }
	m, err := New(config, f)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	for i := range uint32(20_000) {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		f.connections[i] = &Connection{}
		m.Handle(Event{Type: Established, Token: i, Server: true, Subflow: Subflow{Local: netip.MustParseAddrPort("192.0.2.1:80"), Remote: client}}, now)
	}
	return m, f, now
}

// serviceVariable makes this program a Service of the namespace it names, so that its processor time can be told from the test's.
const serviceVariable = "PLAIT_TEST_MPTCP_SERVICE"

func TestMain(m *testing.M) {
	if ns := os.Getenv(serviceVariable); ns != "" {
		if err := serviceMain(ns); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serviceMain prints microseconds of processor time, connections seen, the slowest reaction in microseconds and events lost, when its input ends.
func serviceMain(ns string) error {
	w := &world{}
	w.reach(1, 2)
	var s *Service
	if err := netns.Do(ns, func() (err error) {
		s, err = Open(Config{Reachable: w.reachable, Exits: []netip.Addr{exitAddr(1, false), exitAddr(2, false)}})
		return err
	}); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- netns.Do(ns, func() error { return s.Run(context.Background()) }) }()
	begin := cpuUS()
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() { _, _ = os.Stdin.Read(make([]byte, 1)); close(ended) }()
	select {
	case err := <-failed:
		return err
	case <-ended:
	}
	st := s.Status()
	fmt.Println(cpuUS()-begin, st.Seen, st.Slowest.Microseconds(), st.Lost, st.Joins)
	return nil
}

// BenchmarkConnections is real connections over veth, each with two further subflows: what one costs the service's process, kernel included.
func BenchmarkConnections(b *testing.B) {
	w := newWorld(b, "")
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serviceVariable+"="+w.server)
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // its output says what matters
	if _, err := fmt.Fscanln(stdout, new(string)); err != nil {
		b.Fatal(err)
	}
	w.listen("tcp4", "0.0.0.0:80")
	var workers sync.WaitGroup
	work := make(chan struct{})
	for range 8 {
		workers.Go(func() {
			w.in(w.client, func() error {
				for range work {
					w.exchange()
				}
				return nil
			})
		})
	}
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	workers.Wait()
	time.Sleep(100 * time.Millisecond) // the last events
	stdin.Close()
	var cpu, seen, slowest, lost, joins float64
	if _, err := fmt.Fscan(stdout, &cpu, &seen, &slowest, &lost, &joins); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(cpu/seen, "cpu-us/connection")
	b.ReportMetric(joins/seen, "joins/connection")
	b.ReportMetric(slowest, "slowest-us")
	b.ReportMetric(lost, "lost")
}

// exchange is one short connection in the calling thread's namespace: a request, an answer, and a moment for the subflows to come.
func (w *world) exchange() {
	dialer := net.Dialer{}
	dialer.SetMultipathTCP(true)
	c, err := dialer.Dial("tcp", "10.77.0.2:80")
	if err != nil {
		w.Error(err)
		return
	}
	defer c.Close()
	if _, err = c.Write([]byte(strings.Repeat(" ", 8) + "  -10000")); err == nil {
		_, err = c.Read(make([]byte, 10_000))
	}
	if err != nil {
		w.Error(err)
	}
	time.Sleep(5 * time.Millisecond)
}

// BenchmarkCommand is one ADD_ADDR on a real connection, with all the kernel does for it: the ACK goes through the client's stack too, whose part
// veth puts on the sender's account.
func BenchmarkCommand(b *testing.B) {
	w := newWorld(b, "")
	s, _ := w.serve()
	w.listen("tcp4", "0.0.0.0:80")
	w.fetch("10.77.0.2:80", -10_000, true)
	w.subflows(s, 1)
	token := w.inventory().connections[0].Token
	defer measureCPU(b)()
	for b.Loop() {
		if err := s.kernel.Announce(token, exitAddr(1, false), 100); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInventory is the reading of 1,000 connections with two subflows each.
func BenchmarkInventory(b *testing.B) {
	w := newWorld(b, "")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp4", "0.0.0.0:80")
	const n = 1000
	for range n {
		w.fetch("10.77.0.2:80", -10, true)
	}
	w.subflows(s, 2*n)
	w.in(w.server, func() error {
		defer measureCPU(b)()
		for b.Loop() {
			if inv, err := takeInventory(); err != nil || inv.census.MPTCP != n {
				b.Fatalf("%v, census %+v", err, inv.census)
			}
		}
		return nil
	})
}
