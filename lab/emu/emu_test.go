package emu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/netns"
)

// TestMain makes the test binary an emulator when Start runs it.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Argument {
		os.Exit(Main(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// newNamespace makes a network namespace for the time of the test.
func newNamespace(t *testing.T, suffix string) string {
	t.Helper()
	name := fmt.Sprintf("plait-test-%d-%s", os.Getpid(), suffix)
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends in the new namespace
		_, err := vnetns.NewNamed(name)
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = vnetns.DeleteNamed(name) })
	// Before there is a device: one that comes up with IPv6 reports its multicast groups at once.
	err := netns.Do(name, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// pair is two hosts joined by an emulated link, and a socket on each.
type pair struct {
	*Process
	a, b net.PacketConn // b sends everything back
	peer net.Addr
}

const port = 7

func newPair(t *testing.T) *pair {
	t.Helper()
	rung.Netns(t)
	ends := [2]End{
		{NS: newNamespace(t, "a"), Interface: "access", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		{NS: newNamespace(t, "b"), Interface: "access", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
	}
	p := &pair{peer: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: port}}
	var err error
	if p.Process, err = Start(Config{Links: []Link{{Name: "access", A: ends[0], B: ends[1], MTU: 1500}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close emulator: %v", err)
		}
	})
	for i, conn := range []*net.PacketConn{&p.a, &p.b} {
		err := netns.Do(ends[i].NS, func() (err error) {
			address := net.IPNet{IP: net.IPv4(192, 0, 2, byte(i+1)), Mask: net.CIDRMask(24, 32)}
			*conn, err = open(address, ends[1-i].MAC, net.IPv4(192, 0, 2, byte(2-i)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*conn).Close() })
	}
	go p.runEcho()
	return p
}

// open gives the device its address and a permanent neighbour, so that nothing but the test's packets is on the link.
func open(address net.IPNet, peerMAC net.HardwareAddr, peer net.IP) (net.PacketConn, error) {
	device, err := netlink.LinkByName("access")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		netlink.AddrAdd(device, &netlink.Addr{IPNet: &address}),
		netlink.NeighSet(&netlink.Neigh{LinkIndex: device.Attrs().Index, IP: peer, HardwareAddr: peerMAC, State: netlink.NUD_PERMANENT}),
	); err != nil {
		return nil, err
	}
	return net.ListenPacket("udp4", fmt.Sprintf("%s:%d", address.IP, port))
}

func (p *pair) runEcho() {
	b := make([]byte, 2000)
	for {
		n, from, err := p.b.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = p.b.WriteTo(b[:n], from)
	}
}

// roundTrip is how long a packet of IP takes there and back, or false if it does not come back in time.
func (p *pair) roundTrip(t *testing.T, bytes int, timeout time.Duration) (time.Duration, bool) {
	t.Helper()
	start := time.Now()
	if _, err := p.a.WriteTo(make([]byte, bytes-28), p.peer); err != nil { // 20 of IPv4, 8 of UDP
		return 0, false
	}
	if err := p.a.SetReadDeadline(start.Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.a.ReadFrom(make([]byte, 2000)); err != nil {
		return 0, false
	}
	return time.Since(start), true
}

func (p *pair) change(t *testing.T, forward, backward experiment.Direction) {
	t.Helper()
	if err := p.Change("access", forward, backward, 1); err != nil {
		t.Fatal(err)
	}
}

// This one is in real time, so a packet may be late, on a busy host every one. What is sought here is a wrong delay, in one
// direction or both; how late the emulator itself is, exact-emulator tells in virtual time.
func TestEmulatorDelays(t *testing.T) {
	p := newPair(t)
	delay := fixed(100, 20, 100)
	p.change(t, delay, delay)
	// 20 ms and the time of 1500 + 14 bytes at 100 Mbit/s, each way.
	want := 2 * (20*ms + 1514*8*10*time.Nanosecond)
	late := 10 * ms
	best := time.Hour
	sent := uint64(0)
	for sent < 5 || best > want+late && sent < 100 {
		sent++
		rtt, ok := p.roundTrip(t, 1500, 20*time.Second)
		if !ok {
			t.Fatal("a packet was lost")
		}
		if rtt < want {
			t.Errorf("round trip of %v, want at least %v", rtt, want)
		}
		best = min(best, rtt)
	}
	if best > want+late {
		t.Errorf("best round trip %v, want %v + %v at most", best, want, late)
	}
	stats, err := p.Stats()
	if want := (DirectionStats{Packets: sent, Bytes: sent * 1514}); err != nil || stats["access"] != (Stats{want, want}) {
		t.Errorf("stats %+v, %v, want %+v in each direction", stats, err, want)
	}
}

func TestEmulatorBlackholeAndCarrier(t *testing.T) {
	p := newPair(t)
	works := func(want bool, when string) {
		t.Helper()
		timeout := 100 * ms
		if want {
			timeout = 10 * time.Second
		}
		if _, ok := p.roundTrip(t, 100, timeout); ok != want {
			t.Errorf("%s: packets come back: %v, want %v", when, ok, want)
		}
	}
	ask := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	works(true, "at first")
	for _, direction := range []string{"forward", "backward", "both"} {
		ask(p.Blackhole("access", direction))
		works(false, "blackhole "+direction)
	}
	ask(p.Blackhole("access", "none"))
	works(true, "blackhole none")
	stats, err := p.Stats()
	if err != nil || stats["access"].Forward.Drops != 2 || stats["access"].Backward.Drops != 1 {
		t.Errorf("stats %+v, %v, want 2 drops forward and 1 backward", stats, err)
	}
	ask(p.Carrier("access", false))
	works(false, "no carrier")
	ask(p.Carrier("access", true))
	// The kernel's link watch takes up to a second to start the queue again.
	back := false
	for range 100 {
		if _, back = p.roundTrip(t, 100, 100*ms); back {
			break
		}
	}
	if !back {
		t.Error("packets do not come back after the carrier did")
	}
}

func TestEmulatorErrors(t *testing.T) {
	p := newPair(t)
	for what, err := range map[string]error{
		"change of unknown link":    p.Change("core", experiment.Direction{}, experiment.Direction{}, 1),
		"blackhole of unknown link": p.Blackhole("core", "both"),
		"unknown direction":         p.Blackhole("access", "up"),
		"carrier of unknown link":   p.Carrier("core", true),
		"trace without recording":   p.Change("access", experiment.Direction{Trace: &experiment.Trace{}}, experiment.Direction{}, 1),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, ok := p.roundTrip(t, 100, 10*time.Second); !ok {
		t.Error("the link no longer works")
	}
}

// Threads of different priority would spin for each other on one processor.
func TestEmulatorThreadsHaveOnePriority(t *testing.T) {
	p := newPair(t)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("threads %v, %v, want several", tasks, err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if attr.Policy != unix.SCHED_FIFO || attr.Priority != priority {
			t.Errorf("thread %d has policy %d and priority %d, want %d and %d", tid, attr.Policy, attr.Priority, unix.SCHED_FIFO, priority)
		}
	}
}

func TestStartError(t *testing.T) {
	rung.Netns(t)
	missing := End{NS: "plait-test-missing", Interface: "access"}
	if _, err := Start(Config{Links: []Link{{Name: "access", A: missing, B: missing, MTU: 1500}}}); err == nil {
		t.Error("an emulator started in a namespace that does not exist")
	}
}
