package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// A client behind both border routers, which are one namespace here.
const (
	clientAddress = "2001:db8:c::1"
	exitAddress   = "2001:db8:1::a" // of the first exit
)

// stray has SIDs in no exit's locator.
var stray = netip.MustParsePrefix("2001:db8:bad::/48")

// service is a content server with a client, to which it sends without a pause.
type service struct {
	*contentServer
	network string // the namespace of border routers and client

	mu     sync.Mutex
	toSID  int       // packets that came encapsulated
	lastTo time.Time // of these
	plain  int       // data to the client that came as it is
	strays int       // packets to where none may go
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{contentServer: newContentServer(t)}
	n := s.second("-network")
	s.network = n.ns
	s.ip("-n " + s.ns + " link set e1 netns " + n.ns)
	for ns, links := range map[string][]string{s.ns: {"all", "e0"}, n.ns: {"all", "e1"}} {
		s.must(netns.Do(ns, func() (err error) {
			for _, l := range links {
				for key, value := range map[string]string{"accept_dad": "0", "seg6_enabled": "1"} {
					err = errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/"+l+"/"+key, []byte(value), 0))
				}
			}
			return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
		}))
	}
	for _, command := range []string{"link set e1 addrgenmode none mtu 1700 up", "addr add " + hopAddress + "/64 dev e1 nodad", "addr add " + clientAddress + "/128 dev e1 nodad",
		"-6 route add 2001:db8:f1:1::/128 encap seg6local action End.DT6 table local dev e1", "-6 route add 2001:db8:f2:1::/128 encap seg6local action End.DT6 table local dev e1"} {
		s.ip("-n " + n.ns + " " + command)
	}
	for _, exit := range []string{"a", "b"} {
		s.ip("-n " + n.ns + " -6 route add 2001:db8:1::" + exit + "/128 dev e1 src " + clientAddress)
	}
	for _, command := range []string{"link set e0 mtu 1700", "-6 route add default via " + hopAddress + " dev e0", // the kernel's own way
		"-6 route add 2001:db8:f1::/48 via " + hopAddress, "-6 route add 2001:db8:f2::/48 via " + hopAddress} {
		s.ip("-n " + s.ns + " " + command)
	}
	s.must(netns.Do(n.ns, s.observe))
	s.ip("-n " + n.ns + " mptcp limits set subflow 8 add_addr_accepted 8")
	return s
}

// observe counts what arrives in the namespace it is called in.
func (s *service) observe() error {
	const all = uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		return err
	}
	packets := os.NewFile(uintptr(fd), "packets")
	s.Cleanup(func() { packets.Close() })
	sids := []netip.Prefix{netip.MustParsePrefix("2001:db8:f1::/48"), netip.MustParsePrefix("2001:db8:f2::/48")}
	client := netip.MustParseAddr(clientAddress)
	go func() {
		b := make([]byte, 2048)
		for {
			n, err := packets.Read(b)
			if err != nil {
				return
			}
			if n < 40 || b[0]>>4 != 6 {
				continue
			}
			to := netip.AddrFrom16([16]byte(b[24:40]))
			s.mu.Lock()
			switch {
			case sids[0].Contains(to) || sids[1].Contains(to):
				s.toSID, s.lastTo = s.toSID+1, time.Now()
			case to == client && n > 500:
				s.plain++
			case stray.Contains(to):
				s.strays++
			}
			s.mu.Unlock()
		}
	}()
	return nil
}

// seen returns what observe has counted.
func (s *service) seen() (toSID, plain int, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.toSID, s.plain, s.lastTo
}

// stream is a connection on which the server sends 4 Mbit/s, and the client checks every byte and how long it waits for one.
type stream struct {
	*service
	pair
	stop chan struct{}
	all  sync.WaitGroup

	mu      sync.Mutex
	at      int
	last    time.Time
	silence time.Duration // the longest
	late    time.Duration // the longest by which this machine kept a clock of 5 ms waiting
}

// begin opens an MPTCP connection to an address of the server and sends on it.
func (s *service) begin(to string) *stream {
	s.Helper()
	return s.beginFrom(s.network, clientAddress, to)
}

// dialFrom opens an MPTCP connection to an address of the server, from an address in a namespace.
func (s *service) dialFrom(ns, client, to string) (p pair) {
	s.Helper()
	var l net.Listener
	s.in(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(true)
		l, err = c.Listen(context.Background(), "tcp", "[::]:0") // subflows come to the exits' addresses
		return err
	})
	s.Cleanup(func() { l.Close() })
	s.must(netns.Do(ns, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 0)), Timeout: 5 * time.Second}
		d.SetMultipathTCP(true)
		c, err := d.Dial("tcp", fmt.Sprintf("[%s]:%d", to, l.Addr().(*net.TCPAddr).Port))
		if err == nil {
			p.client = c.(*net.TCPConn)
		}
		return err
	}))
	c, err := l.Accept()
	s.must(err)
	p.server = c.(*net.TCPConn)
	return p
}

// beginFrom sends on such a connection.
func (s *service) beginFrom(ns, client, to string) *stream {
	s.Helper()
	st := &stream{service: s, pair: s.dialFrom(ns, client, to), stop: make(chan struct{}), last: time.Now()}
	const chunk, every = 2500, 5 * time.Millisecond
	st.all.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for at := 0; ; at += chunk {
			select {
			case <-st.stop:
				return
			case <-tick.C:
			}
			if err := send(st.server, at, chunk); st.failed("send", err) {
				return
			}
		}
	})
	st.all.Go(st.receive)
	st.all.Go(func() {
		for then := time.Now(); !st.failed("", nil); {
			time.Sleep(every)
			now := time.Now()
			st.mu.Lock()
			st.late = max(st.late, now.Sub(then)-every)
			st.mu.Unlock()
			then = now
		}
	})
	s.Cleanup(st.end)
	return st
}

func (st *stream) receive() {
	b := make([]byte, 64<<10)
	for {
		n, err := st.client.Read(b)
		st.mu.Lock()
		st.silence, st.last = max(st.silence, time.Since(st.last)), time.Now()
		same := receive(bytes.NewReader(b[:n]), st.at, n)
		st.at += n
		st.mu.Unlock()
		if st.failed("receive", errors.Join(err, same)) {
			return
		}
	}
}

// failed says whether the stream is over; if it should not be, that is an error.
func (st *stream) failed(doing string, err error) bool {
	select {
	case <-st.stop:
		return true
	default:
	}
	if err != nil {
		st.Errorf("%s: %v", doing, err)
	}
	return err != nil
}

// quiet is the longest time without a byte since the last call, less what is due to a machine too busy for its clock.
func (st *stream) quiet() (silence, late time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	silence, late = max(st.silence, time.Since(st.last))-st.late, st.late
	st.silence, st.late, st.last = 0, 0, time.Now()
	return silence, late
}

func (st *stream) end() {
	select {
	case <-st.stop:
		return
	default:
	}
	close(st.stop)
	st.close()
	st.all.Wait()
}

// limit is the longest silence of a stream that these tests let pass.
const limit = time.Second

// wentOn checks that no stream was silent for long since it was asked last.
func (s *service) wentOn(what string, streams ...*stream) {
	s.Helper()
	if longest, _ := s.silence(what, streams...); longest > limit {
		s.Errorf("%s: a stream was silent for %v", what, longest)
	}
}

// silence is the longest of streams since it was asked last; late is by how much the machine was.
func (s *service) silence(what string, streams ...*stream) (longest, late time.Duration) {
	s.Helper()
	for i, st := range streams {
		silence, l := st.quiet()
		longest, late = max(longest, silence), max(late, l)
		s.Logf("%s: stream %d was silent for at most %v (and the machine late by %v)", what, i, max(0, silence).Round(time.Millisecond), l.Round(time.Millisecond))
	}
	return longest, late
}

// onBestPath is how long after a moment packets went to a SID, or a stream was silent; for what a second after it is so still, more than limit.
func (s *service) onBestPath(what string, since time.Time, streams ...*stream) (took time.Duration) {
	s.Helper()
	time.Sleep(time.Until(since.Add(limit)))
	_, before, _ := s.seen()
	time.Sleep(500 * time.Millisecond)
	_, plain, last := s.seen()
	longest, late := s.silence(what, streams...)
	s.Logf("%s: the last packet to a SID came %v after that moment; then %d came the plain way", what, max(0, last.Sub(since)).Round(time.Millisecond), plain-before)
	if plain == before {
		longest = max(longest, limit+1)
	}
	if last.After(since) {
		longest = max(longest, last.Sub(since)-late)
	}
	return longest
}

// begun runs a daemon, by another program if there is one, and does not wait until it is up: it may be killed before.
func (s *contentServer) begun(mode Mode, by ...string) *process {
	s.Helper()
	s.eventually(time.Minute, "the name is free: another plait is up on this machine", func() bool { return !registered() })
	file, err := os.CreateTemp(s.dir, "*.yaml")
	s.must(err)
	file.Close()
	p := newProcess(file.Name(), filepath.Join(s.dir, "control"))
	s.write(p.config, p.Path(), fmt.Sprintf(egressSection, mode))
	if len(by) > 0 {
		self, err := os.Executable()
		s.must(err)
		p.cmd.Path, err = exec.LookPath(by[0])
		s.must(err)
		p.cmd.Args = append(by, self)
	}
	s.must(netns.Start(s.ns, p.cmd))
	s.Cleanup(func() {
		p.kill()
		if said := p.said.Bytes(); s.Failed() {
			s.Logf("a daemon said in the end: %s", said[max(0, len(said)-1000):])
		}
	})
	return p
}

// hangUp drops the connections of daemons that were killed before anybody greeted them: greet would take one for that of the next daemon.
func (s *contentServer) hangUp() {
	s.Helper()
	s.must(s.listener.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond)))
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// restless talks as a reflector whose routes come and go, 4,000 of them, while those of the client stay. It returns when the session ends.
func (s *service) restless() {
	for _, f := range reflectorFamilies[:2] {
		_ = s.tell(wire.NewEndOfRib(f))
	}
	_ = s.tell(s.announce(1, "2001:db8:c::/48"), s.announce(2, "2001:db8:c::/48"), s.announce(0, "2001:db8:c::/48"))
	for _, f := range reflectorFamilies[2:] {
		_ = s.tell(wire.NewEndOfRib(f))
	}
	for round := 0; ; round++ {
		for i := range 4000 {
			prefix := fmt.Sprintf("2001:db9:%x::/48", i)
			m := s.announce(i%3, prefix)
			if round%2 == 1 {
				m = s.withdraw(i%3, prefix)
			}
			if s.tell(m) != nil {
				return
			}
		}
	}
}

// tell says messages to a daemon that may be killed.
func (s *contentServer) tell(messages ...*wire.BGPMessage) error {
	for _, m := range messages {
		raw, err := m.Serialize()
		if err == nil {
			_, err = s.conn.Write(raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The daemon is killed at any moment: while it comes up, while it writes routes, while it goes down. The stream goes on, and within a second all of it takes
// the best path. What is left then is no danger: it goes on without any exit.
func TestEgressKilledAnywhere(t *testing.T) {
	s := newService(t)
	before := s.everything()
	r := rand.New(rand.NewPCG(7, 7))
	slow := 0 // rounds: where a helper waits for a processor the streams wait for it, and of that the test does not know
	for round := range 12 {
		streams := []*stream{s.begin(serverAddress)}
		p := s.begun(On)
		at := time.Duration(r.Int64N(int64(300 * time.Millisecond))) // while it comes up, or writes routes
		if round%3 > 0 {
			s.greet()
			go s.restless()
			s.has(true, "ip -6 rule", "500: from "+exitAddress+" ")
			s.has(true, "ip -6 -o addr", ".* "+exitAddress+"/128 ")
		}
		time.Sleep(at)
		if round%3 > 0 {
			streams = append(streams, s.begin(serverAddress), s.begin(exitAddress)) // the daemon knows them from their first packet on
			_, _, last := s.seen()
			s.eventually(10*time.Second, "packets to a SID", func() bool { _, _, now := s.seen(); return now.After(last) })
		}
		if round%3 == 2 { // it is going down
			go func() { _, _ = p.Stop(context.Background()) }()
			time.Sleep(time.Duration(r.Int64N(int64(60 * time.Millisecond))))
		}
		for _, st := range streams {
			st.quiet()
		}
		killed := time.Now()
		p.kill()
		what := fmt.Sprintf("round %d, killed after %v", round, at)
		if took := s.onBestPath(what, killed, streams...); took > limit {
			if slow++; slow > 1 || took > 10*limit {
				t.Errorf("%s: on the best path after %v, want less than %v but for one round", what, took, limit)
			}
		}
		for _, st := range streams {
			st.end()
		}
		s.hangUp()
	}
	p := &process{ControlClient: Client(filepath.Join(s.dir, "control"))}
	s.cleanup(p)
	s.same("after plait down", before)
}

// A plait that is started anew knows no exit until a reflector has told it some. Until then the subflows that a killed one has left stay as they are.
func TestEgressStartedAgain(t *testing.T) {
	s := newService(t)
	onExit := func() bool { // the second; the best path's needs no subflow of its own
		return slices.ContainsFunc(s.show("ss -Htn state established"), func(line string) bool { return strings.Contains(line, "[2001:db8:1::b]:") })
	}
	p := s.tells(On)
	st := s.begin(serverAddress)
	s.eventually(20*time.Second, "a subflow on an exit's address", onExit)
	p.kill()
	p = s.up(fmt.Sprintf(egressSection, On))
	s.greet()
	time.Sleep(time.Second) // no event tells that nothing is done
	if !onExit() {
		t.Error("the subflow is gone before any route was told")
	}
	for exit := range 3 {
		s.say(s.announce(exit, "2001:db8:c::/48"))
	}
	for _, f := range reflectorFamilies {
		s.say(wire.NewEndOfRib(f))
	}
	s.eventually(20*time.Second, "all routes are told", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.Settled
	})
	_, _, last := s.seen()
	s.eventually(20*time.Second, "packets to a SID", func() bool { _, _, now := s.seen(); return now.After(last) })
	if !onExit() {
		t.Error("the subflow is gone after the routes were told")
	}
	s.wentOn("killed and started again", st)
	st.end()
}

// Connections go on without the exits before plait down takes their addresses, also when it is for what a killed plait has left. Subflows on addresses that are gone
// would hold up the connection, and it would keep them for ever.
func TestEgressDown(t *testing.T) {
	s := newService(t)
	for what, down := range map[string]func(*process){
		"plait down":         func(p *process) { _, err := p.Stop(t.Context()); s.must(err); s.must(p.cmd.Wait()) },
		"killed, plait down": func(p *process) { p.kill(); s.cleanup(p) },
	} {
		_, _, last := s.seen()
		p := s.tells(On)
		st := s.begin(serverAddress)
		s.eventually(20*time.Second, "packets to a SID", func() bool { _, _, now := s.seen(); return now.After(last) })
		down(p)
		s.has(false, "ss -Htn state established", ".*2001:db8:1::[ab]\\]:") // a FIN whose address was gone before it left is the kernel's, and nobody waits for it
		s.wentOn(what, st)
		st.end()
	}
}
