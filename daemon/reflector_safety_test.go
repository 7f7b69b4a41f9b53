package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"
)

// second is another reflector of the same server.
func (s *service) secondReflector() *contentServer {
	s.Helper()
	other := *s.contentServer
	s.in(func() (err error) {
		var l net.ListenConfig
		l.SetMultipathTCP(false)
		other.listener, err = l.Listen(s.Context(), "tcp", "["+earlierSource+"]:179")
		return err
	})
	s.Cleanup(func() { other.listener.Close() })
	return &other
}

// with two reflectors the daemon comes up; the first tells what reaches the client, the second nothing yet.
func (s *service) withTwo(second *contentServer) *process {
	s.Helper()
	one := `    - {address: "` + reflectorAddress + `"}` + "\n"
	p := s.up(strings.Replace(fmt.Sprintf(egressSection, On), one, one+`    - {address: "`+earlierSource+`"}`+"\n", 1))
	s.greet()
	second.greet()
	s.say(s.announce(1, "2001:db8:c::/48"), s.announce(2, "2001:db8:c::/48"), s.announce(0, "2001:db8:c::/48"))
	for _, r := range []*contentServer{s.contentServer, second} {
		for _, f := range reflectorFamilies {
			r.say(wire.NewEndOfRib(f))
		}
	}
	s.has(true, "ip -6 rule", "500: from "+exitAddress+" ")
	s.has(true, "ip -6 -o addr", ".* "+exitAddress+"/128 ")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 nhid .* table 11201 ")
	return p
}

// most is the memory the daemon has had at most, in MB.
func (s *service) most(p *process) int {
	s.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	s.must(err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	s.must(err)
	return kb >> 10
}

// refused is how many routes are not used for a reason.
func (s *service) refused(p *process, reason string) (n uint64) {
	s.Helper()
	e, err := p.Egress()
	s.must(err)
	for _, r := range e.Refused {
		if strings.Contains(r.Reason, reason) {
			n += r.Routes
		}
	}
	return n
}

// unharmed checks that the streams went on, by the exits the client is told of, and that no packet went astray.
func (s *service) unharmed(what string, streams ...*stream) {
	s.Helper()
	s.wentOn(what, streams...)
	_, _, last := s.seen()
	s.eventually(10*time.Second, what+": packets to a SID", func() bool { _, _, now := s.seen(); return now.After(last) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strays > 0 {
		s.Errorf("%s: %d packets went to a SID in no locator", what, s.strays)
	}
}

// badTable are n routes of the first exit with SIDs outside its locators, and among them better ones to the client.
func (s *service) badTable(n int) (messages []*wire.BGPMessage) {
	s.Helper()
	attributes := s.announce(1, "2001:db8:c::/48").Body.(*wire.BGPUpdate).PathAttributes
	for i, a := range attributes {
		switch a.(type) {
		case *wire.PathAttributePrefixSID:
			sid := wire.NewSRv6InformationSubTLV(stray.Addr(), wire.END_DT6, wire.NewSRv6SIDStructureSubSubTLV(32, 16, 16, 0, 0, 0))
			attributes[i] = wire.NewPathAttributePrefixSID(wire.NewSRv6ServiceTLV(wire.TLVTypeSRv6L3Service, sid))
		case *wire.PathAttributeLocalPref:
			attributes[i] = wire.NewPathAttributeLocalPref(1000)
		}
	}
	var nlris []wire.PathNLRI
	for i := range n {
		prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xba, byte(i >> 16), byte(i >> 8), byte(i)}), 56).String()
		switch i {
		case 0:
			prefix = "2001:db8:c::/48"
		case 1:
			prefix = clientAddress + "/128"
		}
		_, nlri := s.way(1, prefix)
		if nlris = append(nlris, nlri); len(nlris) == 100 || i == n-1 {
			reach, err := wire.NewPathAttributeMpReachNLRI(wire.RF_IPv6_VPN, nlris, netip.MustParseAddr(hopAddress))
			s.must(err)
			messages = append(messages, wire.NewBGPUpdateMessage(nil, append(attributes[:len(attributes)-1:len(attributes)-1], reach), nil))
			nlris = nil
		}
	}
	return messages
}

// flap makes 100 routes of the second exit come and go, so many changes a second, until what it returns is called.
func (s *contentServer) flap(perSecond int) (stop func()) {
	const every = 10 * time.Millisecond
	var raw [][]byte
	for i := range 200 {
		prefix := fmt.Sprintf("2001:db9:%x::/48", i/2)
		m := s.announce(2, prefix)
		if i%2 == 1 {
			m = s.withdraw(2, prefix)
		}
		b, err := m.Serialize()
		s.must(err)
		raw = append(raw, b)
	}
	ended, all := make(chan struct{}), sync.WaitGroup{}
	all.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			for range perSecond * int(every) / int(time.Second) {
				if _, err := s.conn.Write(raw[i%len(raw)]); err != nil {
					s.Errorf("flap: %v", err)
					return
				}
				i++
			}
		}
	})
	return func() { close(ended); all.Wait() }
}

// One of two reflectors sends what nobody can read, a table of SIDs that lead astray, and routes that come and go without end. The connections go on, by the
// exits the other reflector tells of.
func TestReflectorMisbehaves(t *testing.T) {
	s := newService(t)
	second := s.secondReflector()
	p := s.withTwo(second)
	streams := []*stream{s.begin(serverAddress), s.begin(exitAddress)}
	state := func() SessionStatus {
		e, err := p.Egress()
		s.must(err)
		return e.Sessions[1]
	}
	s.unharmed("before", streams...)

	r := rand.New(rand.NewPCG(3, 3))
	for round := range 2 {
		if round > 0 {
			second.greet()
			s.eventually(10*time.Second, "the session is there again", func() bool { return state().State == "established" })
		}
		garbage := make([]byte, 1<<20)
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		if round > 0 { // with the header of an UPDATE
			copy(garbage, append(bytes.Repeat([]byte{0xff}, 16), 0x0f, 0xff, wire.BGP_MSG_UPDATE))
		}
		_, _ = second.conn.Write(garbage) // the session ends while it is sent
		s.eventually(10*time.Second, "the session ends", func() bool { return strings.Contains(state().LastError, "cannot be read") })
		s.unharmed(fmt.Sprint("garbage ", round), streams...)
	}

	const bad = 200_000
	second.greet()
	for _, m := range s.badTable(bad) {
		second.say(m)
	}
	took := s.eventually(time.Minute, "all are refused", func() bool { return s.refused(p, "outside the exit's locators") == bad })
	s.unharmed("a table of bad SIDs", streams...)
	s.has(false, plaitsRoutes, ".*2001:db8:bad")
	e, err := p.Egress()
	s.must(err)
	if e.Exits[0].Routes != 1 || e.Exits[1].Routes != 1 {
		t.Errorf("routes of the exits: %d and %d, want what the other reflector tells: 1 and 1", e.Exits[0].Routes, e.Exits[1].Routes)
	}
	t.Logf("%d routes with bad SIDs are refused after %v; the daemon has had at most %d MB", bad, took.Round(time.Millisecond), s.most(p))
	if mb := s.most(p); mb > 600 {
		t.Errorf("the daemon has had %d MB", mb)
	}

	for _, perSecond := range []int{100, 10_000} {
		before, began := cpuOf(t, p.cmd.Process.Pid), time.Now()
		stop := second.flap(perSecond)
		time.Sleep(3 * time.Second)
		t.Logf("%d changes/s: %.1f %% of a core", perSecond, 100*float64(cpuOf(t, p.cmd.Process.Pid)-before)/float64(time.Since(began)))
		s.unharmed(fmt.Sprint(perSecond, " flaps/s"), streams...)
		if perSecond < 10_000 {
			stop()
			continue
		}
		s.withdrawnSoon()
		stop()
	}
	s.must(second.conn.Close())
	took = s.eventually(time.Minute, "its routes go with its session", func() bool { return s.refused(p, "outside the exit's locators") == 0 })
	t.Logf("its routes have gone with its session after %v", took.Round(time.Millisecond))
}

// withdrawnSoon lets the first reflector withdraw the client's route of the first exit: from then on the exit's packets have no way.
func (s *service) withdrawnSoon() {
	s.Helper()
	var socket *net.UDPConn
	s.in(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(exitAddress), 0)))
		return err
	})
	defer socket.Close()
	sent := func() error {
		_, err := socket.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(netip.MustParseAddr(clientAddress), 9))
		return err
	}
	if err := sent(); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		s.Errorf("before the withdrawal: %v", err)
	}
	s.say(s.withdraw(1, "2001:db8:c::/48"))
	took := s.eventually(10*time.Second, "the withdrawn route is out of use", func() bool { return errors.Is(sent(), unix.ENETUNREACH) }) // the rule behind
	s.Logf("the withdrawn route was out of use after %v", took.Round(time.Millisecond))
}
