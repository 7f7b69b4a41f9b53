package mptcp

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// A client on each kind of socket gets a subflow through each exit, and data on it.
func TestSubflowsThroughExits(t *testing.T) {
	for name, c := range map[string]struct{ network, listen, dial string }{
		"IPv4":        {"tcp4", "0.0.0.0:80", "10.77.0.2:80"},
		"IPv6":        {"tcp6", "[::]:80", "[fd77::2]:80"},
		"IPv4-mapped": {"tcp", "[::]:80", "10.77.0.2:80"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "20mbit")
			w.reach(1, 2)
			s, _ := w.serve()
			w.listen(c.network, c.listen)
			d := w.fetch(c.dial, 24_000_000, true)
			w.subflows(s, 3)
			var before [links]int64
			for i := range links {
				before[i] = w.sent(i)
			}
			d.more(6_000_000) // equal links: 2,000,000 each
			for i := range links {
				if n := w.sent(i) - before[i]; n < 500_000 {
					t.Errorf("link %d carried %d of 6,000,000 bytes", i, n)
				}
			}
			d.finish()
			w.until("end of the connection", func() bool { st := s.Status(); return st.Connections == 0 })
			status := s.Status()
			if status.Announces != 2 || status.Joins != 2 || status.Refused != 0 || status.Lost != 0 {
				t.Errorf("status %+v", status)
			}
		})
	}
}

// Exits stop and start to reach the client while it downloads: subflows go and come, and no byte is wrong or missing.
func TestReachabilityChangesDuringTransfer(t *testing.T) {
	for name, address := range map[string]string{"IPv4-mapped": "10.77.0.2:80", "IPv6": "[fd77::2]:80"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "20mbit")
			w.reach(1, 2)
			s, _ := w.serve()
			w.listen("tcp", "[::]:80")
			d := w.fetch(address, 30_000_000, true)
			w.subflows(s, 3)
			d.more(1_000_000)
			w.reach(2)
			s.Changed()
			w.subflows(s, 2)
			w.until("one subflow less in the kernel", func() bool { return w.kernelSubflows() == 2 })
			w.drained(1)
			before := w.sent(1)
			d.more(4_000_000)
			if n := w.sent(1) - before; n > 100_000 {
				t.Errorf("link 1 carried %d bytes after its exit was withdrawn", n)
			}
			w.reach(1, 2)
			s.Changed(netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("fd77::/64"))
			w.subflows(s, 3)
			before = w.sent(1)
			d.more(4_000_000)
			if n := w.sent(1) - before; n < 500_000 {
				t.Errorf("link 1 carried %d bytes after its exit came back", n)
			}
			d.finish()
		})
	}
}

// kernelSubflows is how many subflows the server's kernel has.
func (w *world) kernelSubflows() (n int) {
	w.Helper()
	for _, c := range w.inventory().connections {
		n += len(c.Subflows)
	}
	return n
}

func (w *world) inventory() (inv *inventory) {
	w.Helper()
	w.in(w.server, func() (err error) {
		inv, err = takeInventory()
		return err
	})
	return inv
}

// A subflow made a backup carries nothing while another is there, and carries again when it is not a backup any more.
func TestBackup(t *testing.T) {
	w := newWorld(t, "20mbit")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	d := w.fetch("10.77.0.2:80", 30_000_000, true)
	w.subflows(s, 2)
	d.more(1_000_000)
	w.reachExactly(ExitAddress{Addr: exitAddr(1, false), Backup: true})
	s.Changed()
	w.until("priority", func() bool { st := s.Status(); return st.Priorities == 1 })
	if inv := w.inventory(); len(inv.connections) != 1 || len(inv.connections[0].Subflows) != 2 || !inv.connections[0].Subflows[1].Backup {
		t.Errorf("the kernel has %+v, want the second subflow as backup", inv.connections)
	}
	d.more(2_000_000) // what the subflow had been given is on its way
	w.drained(1)
	before := w.sent(1)
	d.more(4_000_000)
	if n := w.sent(1) - before; n > 100_000 {
		t.Errorf("the backup carried %d of 4,000,000 bytes", n)
	}
	// The other one as backup instead: the connection's own address.
	w.reachExactly(ExitAddress{Addr: exitAddr(1, false)}, ExitAddress{Addr: exitAddr(0, false), Backup: true})
	s.Changed()
	w.until("priorities", func() bool { st := s.Status(); return st.Priorities == 3 })
	d.more(2_000_000)
	w.drained(0)
	before = w.sent(0)
	d.more(4_000_000)
	if n := w.sent(0) - before; n > 100_000 {
		t.Errorf("the first subflow as backup carried %d of 4,000,000 bytes", n)
	}
	d.finish()
}

// More subflows than allowed are closed one by one, without a word about their address.
func TestExcessIsClosed(t *testing.T) {
	for name, address := range map[string]string{"IPv4-mapped": "10.77.0.2:80", "IPv6": "[fd77::2]:80"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "20mbit")
			w.reach(1, 2)
			s, _ := w.serve()
			w.listen("tcp", "[::]:80")
			d := w.fetch(address, -9_000_000, true)
			w.subflows(s, 3)
			s.mu.Lock()
			s.manager.config.MaxSubflows = 1
			s.mu.Unlock()
			w.reachExactly(ExitAddress{Addr: exitAddr(1, false)}, ExitAddress{Addr: exitAddr(1, true)})
			s.Changed()
			w.until("one subflow", func() bool { return w.kernelSubflows() == 1 })
			d.finish()
		})
	}
}

// Each command alone on real subflows, as the kernel answers it.
func TestCommands(t *testing.T) {
	for name, address := range map[string]string{"IPv4-mapped": "10.77.0.2:80", "IPv6": "[fd77::2]:80"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "20mbit")
			w.reach(1)
			s, _ := w.serve()
			w.listen("tcp", "[::]:80")
			d := w.fetch(address, -9_000_000, true)
			w.subflows(s, 2)
			c := w.inventory().connections[0]
			second := c.Subflows[1]
			if second.LocalID < idBase || second.addr() != exitAddr(1, second.addr().Is6()) {
				t.Fatalf("second subflow %+v", second)
			}
			if err := s.kernel.Announce(c.Token, exitAddr(2, second.addr().Is6()), second.LocalID); !errors.Is(err, ErrID) {
				t.Errorf("announce with the id of another address: %v, want ErrID", err)
			}
			if err := s.kernel.SetBackup(c.Token, second, true); err != nil || !w.inventory().connections[0].Subflows[1].Backup {
				t.Errorf("set backup: %v", err)
			}
			if err := s.kernel.Destroy(c.Token, second); err != nil || w.kernelSubflows() != 1 {
				t.Errorf("destroy: %v, %d subflows", err, w.kernelSubflows())
			}
			for what, err := range map[string]error{
				"destroy a subflow that is gone":        s.kernel.Destroy(c.Token, second),
				"set priority of one that is gone":      s.kernel.SetBackup(c.Token, second, true),
				"remove an unknown address":             s.kernel.Remove(c.Token, 254),
				"announce on an unknown connection":     s.kernel.Announce(c.Token+1, second.addr(), 100),
				"remove on an unknown connection":       s.kernel.Remove(c.Token+1, 100),
				"set priority on an unknown connection": s.kernel.SetBackup(c.Token+1, second, true),
			} {
				if !errors.Is(err, ErrGone) {
					t.Errorf("%s: %v, want ErrGone", what, err)
				}
			}
			d.finish()
		})
	}
}

// Older kernels tell the same in fewer words.
func TestCommandsInGuest(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12"} {
		rung.Guest(t, kernel, "PLAIT_TEST=netns ./tests -test.v -test.timeout 110s -test.run '^TestCommands$'")
	}
}

// The manager dies during a transfer: that goes on with all its subflows, and connections that begin now work with one. A new manager finds both.
func TestManagerDiesAndComesBack(t *testing.T) {
	w := newWorld(t, "20mbit")
	w.reach(1)
	s, stop := w.serve()
	w.listen("tcp", "[::]:80")
	old := w.fetch("10.77.0.2:80", 60_000_000, true)
	w.subflows(s, 2)
	stop()
	old.more(3_000_000)
	if n := w.kernelSubflows(); n != 2 {
		t.Errorf("%d subflows after the manager's end, want 2", n)
	}
	// A client that tries to join on its own is turned away.
	w.run("ip", "-n", w.client, "mptcp", "endpoint", "add", "10.77.2.1", "subflow")
	w.until("an attempt to join", func() bool { return w.counter(w.server, "MPTcpExtMPJoinSynRx") >= 2 })
	old.more(1_000_000)
	if n := w.kernelSubflows(); n != 2 {
		t.Errorf("%d subflows after an attempt to join without manager, want 2", n)
	}
	orphan := w.fetch("[fd77::2]:80", 30_000_000, true)
	orphan.more(1_000_000)
	if n := w.kernelSubflows(); n != 3 {
		t.Errorf("%d subflows with a connection that began without manager, want 3", n)
	}
	s, _ = w.serve()
	w.subflows(s, 4)
	status := s.Status()
	if status.Announces != 1 || status.Connections != 2 {
		t.Errorf("status %+v: want one announcement: to the connection that had none", status)
	}
	w.reach() // what the manager before announced can be taken back
	s.Changed()
	w.until("subflows to go", func() bool { return w.kernelSubflows() == 2 })
	w.until("two addresses withdrawn", func() bool { st := s.Status(); return st.Removes == 2 && st.Refused == 0 })
	old.finish()
	orphan.finish()
}

// Before the exits' addresses go, connections go on without them: as they began, and not as a backup.
func TestRelease(t *testing.T) {
	for name, address := range map[string]string{"IPv4-mapped": "10.77.0.2:80", "IPv6": "[fd77::2]:80"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "20mbit")
			at := netip.MustParseAddrPort(address).Addr()
			w.reachExactly(ExitAddress{Addr: exitAddr(1, at.Is6())}, ExitAddress{Addr: exitAddr(2, at.Is6())}, ExitAddress{Addr: at, Backup: true})
			s, stop := w.serve()
			w.listen("tcp", "[::]:80")
			d := w.fetch(address, -9_000_000, true)
			w.subflows(s, 3)
			d.more(1_000_000)
			stop()
			w.in(w.server, func() error { return Release([]netip.Addr{exitAddr(1, at.Is6()), exitAddr(2, at.Is6())}) })
			left := w.inventory().connections[0].Subflows
			if len(left) != 1 || left[0].addr() != at || left[0].Backup {
				t.Errorf("left are %+v, want the first subflow, which is no backup any more", left)
			}
			d.finish()
		})
	}
}

// A client that does not speak MPTCP is served as ever, and counted.
func TestPlainClient(t *testing.T) {
	w := newWorld(t, "20mbit")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	plain, multi := w.fetch("10.77.0.2:80", -5_000_000, false), w.fetch("10.77.0.2:80", -5_000_000, true)
	w.subflows(s, 2)
	if yes, err := plain.conn.MultipathTCP(); yes || err != nil {
		t.Errorf("the plain client has MPTCP: %v, %v", yes, err)
	}
	var census Census
	w.in(w.server, func() (err error) {
		census, err = TakeCensus()
		return err
	})
	if want := (Census{MPTCP: 1, Plain: 1}); census != want {
		t.Errorf("census %+v, want %+v", census, want)
	}
	plain.finish()
	multi.finish()
}

// Many connections come and go at once; nothing is left of them.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t, "")
	w.reach(1, 2)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	w.until("start", func() bool { return s.Status().Resyncs == 1 }) // else one that is closed by then is seen twice
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			address := []string{"10.77.0.2:80", "[fd77::2]:80"}[i%2]
			w.fetch(address, 20_000, i%5 != 0).finish()
		})
	}
	all.Wait()
	w.until("connections to end", func() bool { st := s.Status(); return st.Connections == 0 && st.Waiting == 0 })
	w.until("the kernel's to end", func() bool { return len(w.inventory().connections) == 0 })
	status := s.Status()
	if status.Seen != 160 || status.Subflows != 0 || status.Announced != 0 || status.Refused != 0 || status.Lost != 0 {
		t.Errorf("status %+v", status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager.Tick(time.Now().Add(lingerFor))
	if n := len(s.manager.byToken) + len(s.manager.closing); n != 0 {
		t.Errorf("%d connections are remembered", n)
	}
}

// More events come than there is room for: the picture is read anew and is right.
func TestLostEvents(t *testing.T) {
	w := newWorld(t, "")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	w.until("start", func() bool { st := s.Status(); return st.Resyncs == 1 })
	s.mu.Lock() // the manager stands still
	if err := unix.SetsockoptInt(int(s.events.socket.Fd()), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	var downloads []*download
	for range 300 {
		downloads = append(downloads, w.fetch("10.77.0.2:80", -10_000, true))
	}
	for _, d := range downloads[:150] {
		d.conn.Close()
	}
	s.mu.Unlock()
	w.until("loss", func() bool { return s.Status().Lost > 0 })
	for _, d := range downloads[150:] {
		d.until("bytes", func() bool { return d.progress() == 10_000 })
	}
	w.until("150 connections of two subflows", func() bool {
		st := s.Status()
		return st.Connections == 150 && st.Subflows == 300
	})
	for _, d := range downloads {
		d.conn.Close()
	}
	w.until("their end", func() bool { st := s.Status(); return st.Connections == 0 })
}

// A process without a free file cannot read the picture anew. It tries again, and manages on.
func TestLostEventsWithoutFiles(t *testing.T) {
	w := newWorld(t, "")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	w.until("start", func() bool { return s.Status().Resyncs == 1 })
	w.in(w.server, func() error {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		defer func() {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				t.Error(err)
			}
		}()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
			return err
		}
		if _, err := s.resync(false); !errors.Is(err, unix.EMFILE) {
			t.Errorf("resync: %v, want %v", err, unix.EMFILE)
		}
		err := s.events.Close()
		time.Sleep(300 * time.Millisecond) // for the first try
		return err
	})
	w.until("the connections to be read", func() bool { return s.Status().Resyncs == 2 })
	d := w.fetch("10.77.0.2:80", -10_000, true)
	w.subflows(s, 2)
	d.conn.Close()
}

// Connections that began under the kernel's path manager stay there, and what was set before comes back.
func TestSwitch(t *testing.T) {
	w := newWorld(t, "20mbit")
	var before string
	w.in(w.server, func() error {
		if err := TurnOff(filepath.Join(t.TempDir(), "never written")); err != nil {
			return err
		}
		path, _, now, err := userSpaceSwitch(sysctls)
		if before = now; now == "1" || now == "userspace" {
			err = errors.Join(err, os.WriteFile(path, []byte(map[string]string{"1": "0", "userspace": "kernel"}[now]), 0))
		}
		return err
	})
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	kernels := w.fetch("10.77.0.2:80", 10_000_000, true)
	w.until("refusal", func() bool { st := s.Status(); return st.NotOurs == 1 })
	saved := filepath.Join(t.TempDir(), "saved")
	w.in(w.server, func() error { return TurnOn(saved) })
	ours := w.fetch("10.77.0.2:80", 5_000_000, true)
	w.subflows(s, 3)
	w.in(w.server, func() error { return TurnOff(saved) })
	w.in(w.server, func() error {
		if _, _, now, err := userSpaceSwitch(sysctls); err != nil || now == before {
			t.Errorf("path manager %q after TurnOff, %v", now, err)
		}
		return nil
	})
	kernels.finish()
	ours.finish()
}

// The kernel these tests run on lacks nothing; where MPTCP is off, Probe says so.
func TestProbe(t *testing.T) {
	w := newWorld(t, "")
	w.in(w.server, func() error {
		if lacks := Probe(); len(lacks) > 0 {
			t.Errorf("lacks %+v", lacks)
		}
		return nil
	})
	w.run("ip", "netns", "exec", w.server, "sysctl", "-qw", "net.mptcp.enabled=0")
	if err := netns.Do(w.server, func() error {
		if lacks := Probe(); len(lacks) != 1 || !strings.Contains(lacks[0].What, "net.mptcp.enabled") || !lacks[0].Fatal {
			t.Errorf("lacks %+v, want that MPTCP is off", lacks)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
