package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// acksVariable makes this program the lever ackpath alone, with the configuration file it names: two plaits cannot be up on one kernel, for the name of the congestion
// control is one for all namespaces.
const acksVariable = "PLAIT_TEST_ACKS"

// acksMain is what plait up does of the lever.
func acksMain(path string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := ReadConfig(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a := openAcks(c, nil, os.Stderr)
	if err := keep(daemonKeeps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := listen(c.Control)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a.configure(c)
	m := http.NewServeMux()
	a.questions(m)
	m.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		next, err := c.Reread(path)
		if err == nil {
			c = next
			a.configure(c)
		}
		answer(w, struct{}{}, err)
	})
	fmt.Println("ready")
	if err := errors.Join(serve(ctx, l, m, 0), a.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// device makes a device in a namespace whose packets are the test's to carry: with an Ethernet header (IFF_TAP) or without (IFF_TUN).
func (h *host) device(ns, name string, kind uint16) *os.File {
	h.Helper()
	var fd int
	h.must(netns.Do(ns, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(kind | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}))
	h.ip("-n " + ns + " link set " + name + " txqueuelen 10000") // 500 packets are gone through in the milliseconds that a reader may wait for a busy processor
	f := os.NewFile(uintptr(fd), name)
	h.Cleanup(func() { f.Close() })
	return f
}

// slowly carries what comes from one device to the other, some time later, until a device is gone; but not what loses says, if it is there.
func slowly(from, to *os.File, delay time.Duration, loses func([]byte) bool) {
	variably(from, to, func() time.Duration { return delay }, loses)
}

// variably is a wire whose delay changes; packets stay in their order.
func variably(from, to *os.File, delay func() time.Duration, loses func([]byte) bool) {
	type frame struct {
		due  time.Time
		data []byte
	}
	queue := make(chan frame, 4096)
	go func() {
		for f := range queue {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.data) // as a wire that loses it
		}
	}()
	defer close(queue)
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if loses == nil || !loses(b[:n]) {
			queue <- frame{time.Now().Add(delay()), bytes.Clone(b[:n])}
		}
	}
}

// patient has connections to come send nothing again because an answer is late: such a wire stands still when this process has no processor.
func (h *host) patient(to, device string) {
	h.Helper()
	h.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_early_retrans", []byte("0"), 0) }) // no loss probes
	h.ip("-n " + h.ns + " link set " + device + " up")
	h.ip("-n " + h.ns + " route add " + to + " dev " + device + " rto_min 30s")
}

// ackHosts are a server and a client with two links: a quick one, and a slow one of 30 ms each way that connections begin on.
type ackHosts struct {
	*host
	client *host
	server netip.Addr
	shift  int // of the client's ports, by a NAT
}

// slowDelay is that of the slow link, each way.
const slowDelay = 30 * time.Millisecond

// slowID is the number of the client's address on the slow link.
const slowID = "9"

// newAckHosts gives the client a second subflow over the quick link, which carries no data (backup).
func newAckHosts(t *testing.T, four bool) *ackHosts {
	h := newHost(t)
	a := &ackHosts{host: h, client: h.second("-client")}
	a.carry("slow", unix.IFF_TAP, slowDelay, nil, nil)
	h.ip("-n " + h.ns + " link add quick type veth peer name quick netns " + a.client.ns)
	a.configure(four)
	return a
}

// carry makes a link of the two hosts whose packets out and back, as the client has it, pass these functions, which say what is lost.
func (a *ackHosts) carry(name string, kind uint16, delay time.Duration, out, back func([]byte) bool) {
	a.Helper()
	near, far := a.device(a.client.ns, name, kind), a.device(a.ns, name, kind)
	go slowly(near, far, delay, out)
	go slowly(far, near, delay, back)
}

// configure gives the links addresses, and MPTCP what it needs.
func (a *ackHosts) configure(four bool) {
	h := a.host
	h.Helper()
	slow, quick, length, to := []string{"10.2.0.1", "10.2.0.2"}, []string{"10.1.0.1", "10.1.0.2"}, "/24", "10.2.0.0/24"
	if !four {
		slow, quick, length, to = []string{"fd02::1", "fd02::2"}, []string{"fd01::1", "fd01::2"}, "/64 nodad", "fd02::/64"
	}
	for i, ns := range []string{h.ns, a.client.ns} {
		h.must(netns.Do(ns, func() error {
			for _, name := range []string{"all", "default"} {
				if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0); err != nil {
					return err
				}
			}
			return os.WriteFile("/proc/sys/net/mptcp/enabled", []byte("1"), 0)
		}))
		for name, address := range map[string]string{"slow": slow[i], "quick": quick[i]} {
			h.ip("-n " + ns + " link set " + name + " up")
			h.ip("-n " + ns + " addr add " + address + length + " dev " + name)
		}
		h.ip("-n " + ns + " mptcp limits set subflows 2 add_addr_accepted 2")
	}
	h.ip("-n " + a.client.ns + " route add " + to + " via " + quick[0] + " dev quick metric 2048")
	h.ip("-n " + a.client.ns + " mptcp endpoint add " + quick[1] + " dev quick subflow backup")
	h.ip("-n " + a.client.ns + " mptcp endpoint add " + slow[1] + " dev slow id " + slowID + " subflow") // connections begin with it
	a.server = netip.MustParseAddr(slow[0])
}

// receiver starts the lever on the client.
func (a *ackHosts) receiver(section string) *process {
	a.Helper()
	control := filepath.Join(a.dir, "client")
	p := newProcess(filepath.Join(a.dir, "client.yaml"), control)
	p.cmd.Env = append(os.Environ(), acksVariable+"="+p.config)
	a.section(p, section)
	out, err := p.cmd.StdoutPipe()
	a.must(err)
	a.must(netns.Start(a.client.ns, p.cmd))
	a.Cleanup(func() {
		s, err := p.Ackpath("")
		p.kill()
		if a.Failed() {
			a.Logf("the receiver: %+v, %v\n%s", s, err, p.said.String())
		}
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = p.cmd.Wait()
		a.Fatalf("the receiver does not start: %s", p.said.String())
	}
	return p
}

// section writes the receiver's configuration.
func (a *ackHosts) section(p *process, section string) {
	a.Helper()
	text := fmt.Sprintf("control: %s\ncongestion: {mode: off}\nackpath: {%s}\n", p.Path(), section)
	a.must(os.WriteFile(p.config, []byte(text), 0o600))
}

func (a *ackHosts) acks(p *process) AckpathStatus {
	a.Helper()
	s, err := p.Ackpath("")
	a.must(err)
	return s
}

// copied is the flow that is copied, if there is one.
func (a *ackHosts) copied(p *process) (f AckFlowStatus, ok bool) {
	a.Helper()
	for _, f := range a.acks(p).Flows {
		if !f.Copied.IsZero() {
			return f, true
		}
	}
	return f, false
}

// attached says to which interfaces programs of the lever are attached.
func (a *ackHosts) attached() string {
	var all []string
	for _, ns := range []string{a.ns, a.client.ns} {
		for _, device := range []string{"lo", "slow", "quick"} {
			for name, hook := range map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress} {
				if a.hooks(ns, device, hook) > 0 {
					all = append(all, strings.TrimLeft(strings.TrimPrefix(ns, a.ns)+" ", "- ")+device+" "+name)
				}
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// connections opens MPTCP connections, fifty at once, whose second subflows join by themselves.
func (a *ackHosts) connections(many int) (pairs []pair) {
	a.Helper()
	var l net.Listener
	a.in(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(a.server, 0).String())
		return err
	})
	a.Cleanup(func() { l.Close() }) // later: who joins asks it
	pairs = make([]pair, many)
	accepted := make(map[int]*net.TCPConn, many) // by the client's port
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	for some := range slices.Chunk(pairs, 50) {
		var dialed sync.WaitGroup
		for i := range some {
			dialed.Go(func() {
				err := netns.Do(a.client.ns, func() error {
					d := net.Dialer{Timeout: 10 * time.Second}
					d.SetMultipathTCP(true)
					c, err := d.Dial("tcp", l.Addr().String())
					if err == nil {
						some[i].client = c.(*net.TCPConn)
					}
					return err
				})
				if err != nil {
					a.Error(err)
				}
			})
		}
		dialed.Wait()
		if a.Failed() { // Accept would wait without end
			a.FailNow()
		}
		for range some {
			c, err := l.Accept()
			a.must(err)
			accepted[port(c.RemoteAddr())-a.shift] = c.(*net.TCPConn)
		}
	}
	a.Cleanup(func() {
		if a.Failed() {
			a.leave()
		}
	})
	patience := time.Now().Add(5 * time.Minute) // a connection that stands still fails its test
	for i, p := range pairs {
		p.server = accepted[port(p.client.LocalAddr())]
		a.Cleanup(p.close)
		a.must(errors.Join(p.client.SetDeadline(patience), p.server.SetDeadline(patience)))
		pairs[i] = p
	}
	return pairs
}

// leave waits for the end of closed connections while their links are there: they would hold plait's programs for minutes, and fail the tests after this one.
func (a *ackHosts) leave() {
	for range 50 {
		left, err := exec.Command("ip", "netns", "exec", a.ns, "ss", "-Htn", "exclude", "listening", "exclude", "time-wait").CombinedOutput()
		if err != nil || len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// download keeps a connection of the server's busy until what it returns is called, which checks that every byte arrived.
func (a *ackHosts) download() (p pair, quiet func()) {
	a.Helper()
	pairs := a.connections(1)
	return pairs[0], a.busy(pairs)
}

// hooks says how many programs are attached to the packets of an interface.
func (h *host) hooks(ns, device string, as ebpf.AttachType) (n int) {
	h.Helper()
	h.must(netns.Do(ns, func() error {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		q, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: as})
		if err == nil {
			n = len(q.Programs)
		}
		return err
	}))
	return n
}

// copies waits until ACKs are copied, and their lead is known.
func (a *ackHosts) copies(what string, p *process) AckFlowStatus {
	a.Helper()
	var f AckFlowStatus
	a.eventually(time.Minute, what+": ACKs are copied and arrive before their twins", func() bool {
		f, _ = a.copied(p)
		return f.Copies > 20 && f.Arrived > 20 && f.LeadMs > 0
	})
	return f
}

// signals checks that the server hears each change of a copied subflow's priority, which goes in an ACK of its own, once.
func (a *ackHosts) signals() {
	a.Helper()
	const changes = 10
	for i := range changes {
		a.ip("-n " + a.client.ns + " mptcp endpoint change id " + slowID + " " + []string{"backup", "nobackup"}[i%2])
		time.Sleep(100 * time.Millisecond)
	}
	var heard int
	defer func() { a.Logf("%d changes of priority, %d heard", changes, heard) }()
	a.eventually(10*time.Second, "the server hears every change of priority", func() bool {
		heard = a.counter("MPTcpExtMPPrioRx")
		return heard >= changes // a twin may be heard as well
	})
}

// ends waits until no ACK is copied, and no program attached.
func (a *ackHosts) ends(what string) {
	a.Helper()
	a.eventually(time.Minute, what+": no program is attached", func() bool { return a.attached() == "" })
}

// One connection from its first byte to its last, while everything around it comes and goes.
func TestAckpath(t *testing.T) {
	for _, four := range []bool{true, false} {
		t.Run(map[bool]string{true: "IPv4", false: "IPv6"}[four], func(t *testing.T) { ackpathStory(t, newAckHosts(t, four)) })
	}
}

// What the sender sends over the slow link is encapsulated, as by plait's own routes to an exit (SRv6); the ACKs that come back by it are seen.
func TestAckpathEncapsulated(t *testing.T) {
	a := newAckHosts(t, false)
	const sid = "fd99::1"
	a.must(netns.Do(a.client.ns, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/all/seg6_enabled", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/slow/seg6_enabled", []byte("1"), 0))
	}))
	a.ip("-n " + a.client.ns + " -6 route add " + sid + " encap seg6local action End.DT6 table 255 dev slow")
	a.ip("-n " + a.ns + " -6 route add " + sid + " via fd02::2 dev slow")
	a.ip("-n " + a.ns + " -6 route add fd02::2/128 encap seg6 mode encap segs " + sid + " dev slow")
	server := a.up("  holdout_percent: 0")
	client := a.receiver("mode: on, ratio: 1")
	p, quiet := a.download()
	if f := a.copies("over an encapsulated way", client); f.Link != "slow" {
		t.Errorf("copied is %+v", f)
	}
	quiet()
	a.over(p, server, client)
}

// over ends a connection while its links are there: it would hold plait's programs for minutes.
func (a *ackHosts) over(p pair, ended ...*process) {
	a.Helper()
	p.close()
	for _, one := range ended {
		one.kill()
	}
	a.clean("the connection has ended, on links that are still there")
}

// Without TCP timestamps no ACK is copied, and that is said.
func TestAckpathWithoutTimestamps(t *testing.T) {
	a := newAckHosts(t, true)
	a.must(netns.Do(a.client.ns, func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_timestamps", []byte("0"), 0) }))
	server := a.up("  holdout_percent: 0")
	client := a.receiver("mode: on, ratio: 1")
	p, quiet := a.download()
	a.eventually(time.Minute, "it is said that there are no timestamps", func() bool {
		s := a.acks(client)
		return s.Copies == 0 && slices.ContainsFunc(s.Flows, func(f AckFlowStatus) bool { return f.Copied.IsZero() && strings.Contains(f.Because, "tcp_timestamps") })
	})
	quiet()
	a.over(p, server, client)
}

func ackpathStory(t *testing.T, a *ackHosts) {
	const (
		copying  = "mode: on, ratio: 1" // a busy machine answers hellos late, over both links
		programs = "client slow egress, quick ingress, slow ingress"
	)
	server, client := a.up("  holdout_percent: 0"), a.receiver(copying)
	if s := a.status(server); s.Ackpath != nil {
		t.Errorf("the server's status tells of %+v before anything happens", s.Ackpath)
	}
	p, quiet := a.download()
	f := a.copies("at first", client)
	if f.Link != "slow" || f.Over != "quick" || f.Remote.Addr() != a.server {
		t.Errorf("copied is %+v", f)
	}
	if got := a.attached(); got != programs {
		t.Errorf("attached: %s, want %s", got, programs)
	}
	s, err := server.Ackpath("")
	a.must(err)
	if len(s.Taken) != 1 || s.Taken[0].Copies < 20 || s.Taken[0].Remote != f.Local || s.Taken[0].Local != f.Remote {
		t.Errorf("the server takes %+v, want copies of %v-%v", s.Taken, f.Remote, f.Local)
	}
	if e, err := client.Ackpath(f.Remote.String()); err != nil || len(e.Flows) != 2 || len(e.Ways) != 2 {
		t.Errorf("explain %v: %+v, %v, want the connection's two subflows and its two ways", f.Remote, e, err)
	}
	if _, err := client.Ackpath("192.0.2.99"); !errors.Is(err, ErrNoSocket) {
		t.Errorf("explain a host without connections: %v", err)
	}

	a.signals()
	for _, section := range []string{"mode: observe", "mode: off"} {
		a.section(client, section)
		a.must(client.Reload())
		a.ends(section)
		a.section(client, copying)
		a.must(client.Reload())
		a.copies("after "+section, client)
	}

	client.kill()
	a.ends("the receiver is killed")
	client = a.receiver(copying)
	a.copies("another receiver", client)
	server.kill()
	a.ends("the sender is killed")
	quiet()
	client.kill()
	if said := client.said.String(); !strings.Contains(said, "are copied no more") || !strings.Contains(said, "does not answer over quick") {
		t.Errorf("the receiver does not say why it ends: %s", said)
	}
	a.over(p)
}
