package mptcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
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
		m.Changed(newPrefixSet(prefixes).contains, func() {})
		m.Tick(now)
	}
}

func BenchmarkChangedAll(b *testing.B) {
	m, _, now := crowded(b)
	defer measureCPU(b)()
	for b.Loop() {
		m.Changed(nil, func() {})
		for m.waiting() > 0 {
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

// serviceVariable makes this program a Service of the namespace it is started in, with so many exits, so that its processor time can be told from the test's. It does not repeat
// announcements.
const serviceVariable = "PLAIT_TEST_MPTCP_SERVICE"

func TestMain(m *testing.M) {
	var err error
	if exits, is := strconv.Atoi(os.Getenv(serviceVariable)); is == nil {
		err = serviceMain(exits)
	} else if text := os.Getenv(crowdVariable); text != "" {
		err = crowdMain(text)
	} else {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serviceMain prints a report for each byte of its input, and one when that ends.
func serviceMain(exits int) error {
	w := &world{}
	for i := range repeatAfter {
		repeatAfter[i] = time.Hour // how many there are would depend on how soon the machine's other work lets the client's kernel threads join
	}
	config := Config{Reachable: w.reachable}
	for i := range exits {
		config.Exits = append(config.Exits, exitAddr(i+1, false))
		w.exits = append(w.exits, ExitAddress{Addr: exitAddr(i+1, false)})
	}
	s, err := Open(config)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Run(context.Background()) }()
	fmt.Println("ready")
	asked := make(chan error)
	go func() {
		for {
			_, err := os.Stdin.Read(make([]byte, 1))
			asked <- err
		}
	}()
	for {
		select {
		case err := <-failed:
			return err
		case end := <-asked:
			st := s.Status()
			if fmt.Println(cpuUS(), st.Seen, st.Subflows, st.Slowest.Microseconds(), st.Lost, st.Joins); end != nil {
				return nil
			}
		}
	}
}

// report is what serviceMain prints: microseconds of processor time, connections that came and subflows that are, the slowest reaction in microseconds, events
// lost, subflows that clients added.
type report struct{ cpu, seen, subflows, slowest, lost, joins float64 }

// child is this program as one of those that TestMain knows.
type child struct {
	*world
	cmd   *exec.Cmd
	input io.WriteCloser
	said  io.Reader
}

// child starts one in a namespace and waits until it is ready; by may be a program that runs it.
func (w *world) child(ns, variable string, by ...string) *child {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	by = append(by, self)
	c := &child{world: w, cmd: exec.Command(by[0], by[1:]...)}
	c.cmd.Env = append(os.Environ(), variable)
	c.cmd.Stderr = os.Stderr
	c.input, _ = c.cmd.StdinPipe()
	c.said, _ = c.cmd.StdoutPipe()
	if err := netns.Start(ns, c.cmd); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.end)
	c.scan(new(string))
	return c
}

func (c *child) scan(into ...any) {
	c.Helper()
	if _, err := fmt.Fscan(c.said, into...); err != nil {
		c.Fatal(err)
	}
}

func (c *child) next() {
	c.Helper()
	if _, err := c.input.Write([]byte{0}); err != nil {
		c.Fatal(err)
	}
}

func (c *child) end() {
	_ = c.input.Close()
	_ = c.cmd.Wait() // its output says what matters
}

// report asks serviceMain for one; the last one ends it.
func (c *child) report(last bool) (r report) {
	c.Helper()
	if last {
		_ = c.input.Close()
	} else {
		c.next()
	}
	c.scan(&r.cpu, &r.seen, &r.subflows, &r.slowest, &r.lost, &r.joins)
	return r
}

// BenchmarkConnections is real connections over veth, each with two further subflows, one after the other: what one costs the service's process, kernel included.
func BenchmarkConnections(b *testing.B) {
	w := newWorld(b, "")
	manager := w.child(w.server, serviceVariable+"=2")
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
	before := manager.report(false)
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	workers.Wait()
	time.Sleep(100 * time.Millisecond) // the last events
	r := manager.report(true)
	b.ReportMetric((r.cpu-before.cpu)/r.seen, "cpu-us/connection")
	b.ReportMetric(r.joins/r.seen, "joins/connection")
	b.ReportMetric(r.slowest, "slowest-us")
	b.ReportMetric(r.lost, "lost")
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
// veth puts on the sender's account. The address is one the service has announced: it would close a subflow to another.
func BenchmarkCommand(b *testing.B) {
	w := newWorld(b, "")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp4", "0.0.0.0:80")
	w.fetch("10.77.0.2:80", -10_000, true)
	w.subflows(s, 2)
	token, exit := w.inventory().connections[0].Token, exitAddr(1, false)
	defer measureCPU(b)()
	for b.Loop() {
		if err := s.kernel.Announce(token, exit, s.manager.ids[exit]); err != nil {
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
