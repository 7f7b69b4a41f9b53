package stripe

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// The test binary is also the two programs that run in namespaces: without rights, each a process of its own.
func TestMain(m *testing.M) {
	switch os.Getenv("STRIPE_TEST_ROLE") {
	case "listen":
		listenRole()
	case "dial":
		dialRole()
	default:
		os.Exit(m.Run())
	}
}

// report is a line a program writes.
type report struct {
	Peers []Peer
	Sum   string
	Bytes int
	Stall time.Duration // longest time nothing was read
	Links []LinkStats
	Err   string
}

func say(r report) { _ = json.NewEncoder(os.Stdout).Encode(r) }

// roleKeys are the keys of the two programs, of seeds everybody knows.
func roleKeys() (dial, listen PrivateKey) {
	_ = dial.UnmarshalText([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
	_ = listen.UnmarshalText([]byte("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="))
	return dial, listen
}

// listenRole takes one connection, reads it to the end and answers with the sum.
func listenRole() {
	dial, listen := roleKeys()
	l, err := Listen(&Config{Key: listen, Peers: []PublicKey{dial.Public()}, Carrier: Carrier(os.Getenv("STRIPE_TEST_OVER"))}, ":0")
	if err != nil {
		say(report{Err: err.Error()})
		return
	}
	say(report{Peers: l.Peers()})
	c, err := l.Accept()
	if err != nil {
		say(report{Err: err.Error()})
		return
	}
	h, r, last := sha256.New(), report{}, time.Now()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		h.Write(buf[:n])
		r.Stall = max(r.Stall, time.Since(last))
		last = time.Now()
		if r.Bytes += n; err != nil {
			break
		}
	}
	r.Sum = fmt.Sprintf("%x", h.Sum(nil))
	r.Links = c.(*Conn).Stats()
	say(r)
	c.Close()
}

// dialRole connects, sends as many bytes as it is told, at least as long as it is told, and says every 50 ms what its links do.
func dialRole() {
	dial, listen := roleKeys()
	cfg := Config{Key: dial, Peers: []PublicKey{listen.Public()}, Carrier: Carrier(os.Getenv("STRIPE_TEST_OVER"))}
	if err := json.Unmarshal([]byte(os.Getenv("STRIPE_TEST_LINKS")), &cfg.Links); err != nil {
		say(report{Err: err.Error()})
		return
	}
	c, err := Dial(context.Background(), &cfg, strings.Split(os.Getenv("STRIPE_TEST_TO"), ",")...)
	if err != nil {
		say(report{Err: err.Error()})
		return
	}
	n, _ := strconv.Atoi(os.Getenv("STRIPE_TEST_BYTES"))
	over := make(chan struct{})
	var during sync.WaitGroup
	during.Go(func() {
		for {
			say(report{Links: c.Stats()})
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	data := noise(n, 9)
	_, err = c.Write(data)
	r := report{Sum: fmt.Sprintf("%x", sha256.Sum256(data)), Bytes: n}
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		r.Err = err.Error()
	}
	close(over)
	during.Wait() // what is said last is the whole
	r.Links = c.Stats()
	say(r)
}

// world is two hosts, joined by links.
type world struct {
	testing.TB
	client, server string // namespaces
	program        string
	over           Carrier
}

func newWorld(t testing.TB, over Carrier, links int, rate string) *world {
	rung.Netns(t)
	name := fmt.Sprintf("plait-stripe-%d-%d", os.Getpid(), rand.Uint32N(1<<16))
	w := &world{TB: t, over: over, client: name + "c", server: name + "s"}
	for _, ns := range []string{w.client, w.server} {
		w.run("ip", "netns", "add", ns)
		t.Cleanup(func() { w.run("ip", "netns", "del", ns) })
		w.run("ip", "-n", ns, "link", "set", "lo", "up")
	}
	for i := range links {
		w.link(i)
		w.addr(i)
		for ns, dev := range map[string]string{w.client: "c", w.server: "s"} {
			w.run("tc", "-n", ns, "qdisc", "add", "dev", fmt.Sprint(dev, i), "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms")
		}
	}
	w.carriers(links)
	w.program = filepath.Join(t.TempDir(), "stripe.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(w.program, self, 0o755)
	}
	for dir := filepath.Dir(w.program); err == nil && dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) run(name string, args ...string) {
	w.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		w.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func (w *world) link(i int) {
	w.run("ip", "-n", w.client, "link", "add", fmt.Sprint("c", i), "type", "veth", "peer", "name", fmt.Sprint("s", i), "netns", w.server)
}

func (w *world) addr(i int) {
	for ns, end := range map[string]int{w.client: 1, w.server: 2} {
		dev := fmt.Sprint(map[int]string{1: "c", 2: "s"}[end], i)
		w.run("ip", "-n", ns, "link", "set", dev, "up")
		w.run("ip", "-n", ns, "addr", "replace", fmt.Sprintf("10.78.%d.%d/24", i, end), "dev", dev)
	}
}

// carriers waits until all links are up, which takes a moment: what is sent before is lost.
func (w *world) carriers(links int) {
	w.Helper()
	for _, ns := range []string{w.client, w.server} {
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			late := time.Since(start) > 30*time.Second
			out, err := exec.Command("ip", "-n", ns, "-o", "link", "show", "up", "type", "veth").CombinedOutput()
			if err == nil && strings.Count(string(out), "LOWER_UP") == links {
				break
			}
			if late {
				w.Fatalf("links of %s do not come up: %v\n%s", ns, err, out)
			}
		}
	}
}

// program is one that runs.
type program struct {
	reports chan report // closed at its end
	last    report      // valid then
	seen    report      // by until
}

// start runs a program as nobody.
func (w *world) start(ns string, env ...string) *program {
	w.Helper()
	cmd := exec.Command(w.program)
	cmd.Env = append(append(os.Environ(), "STRIPE_TEST_OVER="+string(w.over)), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = netns.Start(ns, cmd)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := &program{reports: make(chan report, 1000)}
	go func() {
		defer close(p.reports)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.last = r
				p.reports <- r
			}
		}
	}()
	return p
}

// transfer sends bytes from client to server over links; during runs meanwhile.
func (w *world) transfer(bytes int, links string, during func(near *program)) (sent, got report) {
	w.Helper()
	far := w.start(w.server, "STRIPE_TEST_ROLE=listen")
	hello := <-far.reports
	if len(hello.Peers) == 0 {
		w.Fatalf("the listener says %+v", hello)
	}
	near := w.start(w.client, "STRIPE_TEST_ROLE=dial", "STRIPE_TEST_TO="+hello.Peers[0].Addrs[0].String(), "STRIPE_TEST_LINKS="+links, fmt.Sprint("STRIPE_TEST_BYTES=", bytes))
	if during != nil {
		during(near)
	}
	for range near.reports {
	}
	if sent = near.last; sent.Err != "" { // the listener may wait for ever
		w.Fatalf("sent %+v", sent)
	}
	for range far.reports {
	}
	got = far.last
	if got.Sum != sent.Sum || got.Bytes != bytes {
		w.Fatalf("sent %+v\ngot %+v", sent, got)
	}
	for _, l := range sent.Links {
		w.Logf("%s: %d KB, %d KB of them copies, %s", l.Name, l.SentBytes>>10, l.CopiedBytes>>10, l.Error)
	}
	return sent, got
}

// carried is how many bytes a link has sent.
func (r report) carried(link string) int {
	for _, l := range r.Links {
		if l.Name == link {
			return int(l.SentBytes)
		}
	}
	return 0
}

// until waits until a link has sent more than it had when until was called last. A link without a rate may carry all the rest between two reports.
func (w *world) until(p *program, link string, more int) time.Duration {
	w.Helper()
	start, had := time.Now(), p.seen.carried(link)
	for p.seen = range p.reports {
		if p.seen.carried(link) > had+more {
			return time.Since(start)
		}
	}
	w.Fatalf("the transfer ended before %s had sent %d bytes more", link, more)
	return 0
}

// sharing transfers bytes, of which each of the links must carry a quarter. A busy machine may be late to use one: then it has more time, with five times as many.
func (w *world) sharing(bytes int, links ...string) {
	w.Helper()
	for again := false; ; bytes, again = 5*bytes, true {
		sent, _ := w.transfer(bytes, "null", nil)
		i := slices.IndexFunc(links, func(link string) bool { return sent.carried(link) < bytes/4 })
		if i < 0 {
			return
		}
		if again {
			w.Errorf("%s carried %d of %d bytes, less than a quarter", links[i], sent.carried(links[i]), bytes)
			return
		}
	}
}

// atOnce does in up to three worlds what must take less than a second in one of them: here processes may wait for a CPU. In virtual time it is proved to take 300 ms.
func atOnce(t *testing.T, what string, took func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 3 {
		all = append(all, took())
		switch last := all[len(all)-1]; {
		case last <= time.Second:
			t.Logf("%s: %v", what, all)
			return
		case last > 10*time.Second: // no machine is that busy
			t.Fatalf("%s: %v", what, all)
		}
	}
	t.Errorf("%s: %v, want 1 s at most once", what, all)
}

func TestHostUsesAllLinksWithoutRights(t *testing.T) { overEach(t, testHostUsesAllLinksWithoutRights) }

func testHostUsesAllLinksWithoutRights(t *testing.T, over Carrier) {
	newWorld(t, over, 3, "20mbit").sharing(6e6, "c0", "c1", "c2")
}

func TestHostUsesNamedLinksOnly(t *testing.T) { overEach(t, testHostUsesNamedLinksOnly) }

func testHostUsesNamedLinksOnly(t *testing.T, over Carrier) {
	w := newWorld(t, over, 3, "20mbit")
	sent, _ := w.transfer(2e6, `{"c1":{},"c0":{"Share":0.25}}`, nil)
	if share := float64(sent.carried("c0")) / 2e6; sent.carried("c2") != 0 || share > 0.4 || share < 0.1 {
		t.Errorf("c2 carried %d bytes, c0 %.2f of all; want none and 0.25, and what it carried before c1 was there", sent.carried("c2"), share)
	}
}

func TestHostIPv6(t *testing.T) { overEach(t, testHostIPv6) }

func testHostIPv6(t *testing.T, over Carrier) {
	w := newWorld(t, over, 2, "20mbit")
	for i := range 2 {
		for ns, end := range map[string]int{w.client: 1, w.server: 2} {
			dev := fmt.Sprint(map[int]string{1: "c", 2: "s"}[end], i)
			w.run("ip", "-n", ns, "addr", "flush", "dev", dev)
			w.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("fd78:0:0:%d::%d/64", i, end), "dev", dev, "nodad")
		}
	}
	w.sharing(4e6, "c0", "c1")
}

// A path begins at an address that is not on its way out, if there is one, and stays when its address comes to be: RFC 4862, section 5.5.4.
func TestHostAddressDeprecated(t *testing.T) { overEach(t, testHostAddressDeprecated) }

func testHostAddressDeprecated(t *testing.T, over Carrier) {
	w := newWorld(t, over, 1, "20mbit")
	for ns, dev := range map[string]string{w.client: "c0", w.server: "s0"} {
		w.run("ip", "-n", ns, "addr", "flush", "dev", dev)
	}
	w.run("ip", "-n", w.server, "addr", "add", "fd78::2/64", "dev", "s0", "nodad")
	w.run("ip", "-n", w.client, "addr", "add", "fd78::1/64", "dev", "c0", "nodad")
	w.run("ip", "-n", w.client, "addr", "add", "fd78::ff/64", "dev", "c0", "nodad", "preferred_lft", "0")
	local := func(r report) string {
		if len(r.Links) == 0 || len(r.Links[0].Paths) == 0 {
			return ""
		}
		return r.Links[0].Paths[0].Local.Addr().String()
	}
	_, got := w.transfer(8e6, "null", func(near *program) {
		w.until(near, "c0", 1e6)
		if r := <-near.reports; local(r) != "fd78::1" {
			t.Errorf("the path begins at %q: %+v", local(r), r.Links)
		}
		w.run("ip", "-n", w.client, "addr", "change", "fd78::1/64", "dev", "c0", "preferred_lft", "0")
		w.until(near, "c0", 2e6)
		if r := <-near.reports; local(r) != "fd78::1" {
			t.Errorf("later the path begins at %q: %+v", local(r), r.Links)
		}
	})
	if got.Stall > 5*time.Second {
		t.Errorf("nothing was read for %v", got.Stall)
	}
}

func TestHostLinkComes(t *testing.T) { overEach(t, testHostLinkComes) }

func testHostLinkComes(t *testing.T, over Carrier) {
	atOnce(t, "a new link was used after", func() (took time.Duration) {
		w := newWorld(t, over, 1, "20mbit")
		w.link(1)
		w.transfer(12e6, "null", func(near *program) {
			w.until(near, "c0", 1e6)
			w.addr(1)
			took = w.until(near, "c1", 0)
		})
		return took
	})
}

func TestHostLinkGoes(t *testing.T) { overEach(t, testHostLinkGoes) }

func testHostLinkGoes(t *testing.T, over Carrier) {
	for _, c := range []struct {
		name string
		how  []string
	}{
		{"address", []string{"addr", "del", "10.78.0.1/24", "dev", "c0"}},
		{"down", []string{"link", "set", "c0", "down"}},
		{"gone", []string{"link", "del", "c0"}},
		{"silent", []string{"neigh", "replace", "10.78.0.2", "lladdr", "02:00:00:00:00:01", "dev", "c0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			atOnce(t, "nothing was read for", func() time.Duration {
				w := newWorld(t, over, 2, "20mbit")
				_, got := w.transfer(8e6, "null", func(near *program) {
					w.until(near, "c0", 1e6)
					w.run("ip", append([]string{"-n", w.client}, c.how...)...)
				})
				return got.Stall
			})
		})
	}
}

// All links go, and others come, with other addresses.
func TestHostRoams(t *testing.T) { overEach(t, testHostRoams) }

func testHostRoams(t *testing.T, over Carrier) {
	w := newWorld(t, over, 1, "20mbit")
	w.link(1)
	w.transfer(6e6, "null", func(near *program) {
		w.until(near, "c0", 1e6)
		w.run("ip", "-n", w.client, "link", "set", "c0", "down")
		time.Sleep(2 * time.Second)
		w.addr(1)
		// The listener cannot tell its new address while there is no path: it is reached at the one the dialer knows.
		w.run("ip", "-n", w.client, "route", "add", "10.78.0.2", "via", "10.78.1.2", "dev", "c1")
		w.run("ip", "-n", w.server, "link", "set", "s0", "up")
		if took := w.until(near, "c1", 1e6); took > 10*time.Second {
			t.Errorf("went on after %v", took)
		}
	})
}

// A network that lets no UDP through: the link is not used, which is said, and the others carry everything.
func TestHostBlocksUDP(t *testing.T) {
	w := newWorld(t, QUIC, 2, "20mbit")
	for _, rule := range []string{"add pref 10 lookup local", "add pref 1 iif s0 ipproto udp blackhole", "del pref 0 lookup local"} {
		w.run("ip", append([]string{"-n", w.server, "rule"}, strings.Fields(rule)...)...)
	}
	sent, _ := w.transfer(8e6, "null", nil)
	i := slices.IndexFunc(sent.Links, func(l LinkStats) bool { return l.Name == "c0" })
	if i < 0 || sent.Links[i].SentBytes > 0 || !strings.Contains(sent.Links[i].Error, "may block UDP") {
		t.Errorf("of c0 is to be said that it carried nothing and that something may block UDP: %+v", sent.Links)
	}
}

// A link that loses packets of full size without a sign is used all the same, with smaller ones.
func TestHostLosesLargePackets(t *testing.T) {
	for _, carrier := range []Carrier{TCP, QUIC} {
		t.Run(string(carrier), func(t *testing.T) {
			w := newWorld(t, carrier, 2, "20mbit")
			for ns, dev := range map[string]string{w.client: "c0", w.server: "s0"} {
				w.run("tc", "-n", ns, "qdisc", "replace", "dev", dev, "root", "tbf", "rate", "20mbit", "burst", "1300", "latency", "50ms") // it drops what is larger than its burst
			}
			far := w.start(w.server, "STRIPE_TEST_ROLE=listen")
			hello := <-far.reports
			var to []string
			for _, p := range hello.Peers {
				to = append(to, p.Addrs[0].String())
			}
			near := w.start(w.client, "STRIPE_TEST_ROLE=dial", "STRIPE_TEST_TO="+strings.Join(to, ","), "STRIPE_TEST_LINKS=null", "STRIPE_TEST_BYTES=20000000")
			for range near.reports {
			}
			if sent := near.last; sent.Err != "" || sent.carried("c0") < 1e6 {
				t.Errorf("of 20 MB the link carried %d bytes: %+v", sent.carried("c0"), sent)
			}
		})
	}
}
