package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"plait.dev/plait/egress/route"
	"plait.dev/plait/lab/netns"
)

// fullTable is how many IPv6 prefixes a reflector tells of for each exit, as many as the Internet had in 2026; alike of them have the same attributes.
const fullTable, alike = 250_000, 4

func nth(i int) netip.Prefix {
	addr := [16]byte{0x24}
	binary.BigEndian.PutUint32(addr[1:], uint32(i))
	return netip.PrefixFrom(netip.AddrFrom16(addr), 48)
}

// table is what a reflector tells of prefixes through an exit, 0 being the default table, as bytes: making them is not what is measured.
func (s *contentServer) table(exit, prefixes int) (dump []byte) {
	s.Helper()
	family, _ := s.way(exit, "::/0")
	for i := 0; i < prefixes; i += alike {
		m := s.announce(exit, nth(i).String())
		attributes := m.Body.(*wire.BGPUpdate).PathAttributes
		var nlri []wire.PathNLRI
		for k := i; k < min(i+alike, prefixes); k++ {
			_, one := s.way(exit, nth(k).String())
			nlri = append(nlri, one)
		}
		for at, a := range attributes {
			var err error
			switch a.(type) {
			case *wire.PathAttributeMpReachNLRI:
				attributes[at], err = wire.NewPathAttributeMpReachNLRI(family, nlri, netip.MustParseAddr(hopAddress))
			case *wire.PathAttributeAsPath:
				path := wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64496 + uint32(exit), uint32(i%7000) + 1, uint32(i) + 100_000})
				attributes[at] = wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{path})
			}
			s.must(err)
		}
		raw, err := m.Serialize()
		s.must(err)
		dump = append(dump, raw...)
	}
	return dump
}

// endOfTable ends the RIB of each family.
func (s *contentServer) endOfTable() (dump []byte) {
	s.Helper()
	for _, f := range reflectorFamilies {
		raw, err := wire.NewEndOfRib(f).Serialize()
		s.must(err)
		dump = append(dump, raw...)
	}
	return dump
}

// restarting is the capability of a reflector that keeps its forwarding state when it restarts.
func restarting() wire.ParameterCapabilityInterface {
	var kept []*wire.CapGracefulRestartTuple
	for _, f := range reflectorFamilies {
		kept = append(kept, wire.NewCapGracefulRestartTuple(f, true))
	}
	return wire.NewCapGracefulRestart(false, true, 120, kept)
}

// provider is a content server whose reflector is on another host, which only writes: a speaker of BGP would be what is measured.
func provider(tb testing.TB) *contentServer {
	tb.Helper()
	s := &contentServer{host: newHost(tb)}
	reflector := s.ns + "-reflector"
	s.ip("netns add " + reflector)
	tb.Cleanup(func() { s.ip("netns del " + reflector) })
	s.ip("-n " + s.ns + " link add e0 type veth peer name e0 netns " + reflector)
	for ns, address := range map[string]string{s.ns: serverAddress, reflector: reflectorAddress} {
		s.ip("-n " + ns + " link set e0 addrgenmode none up")
		s.ip("-n " + ns + " addr add " + address + "/64 dev e0 nodad")
	}
	s.has(true, "ip -6 route show table local", "local "+serverAddress+" ")
	s.must(netns.Do(reflector, func() (err error) {
		var l net.ListenConfig
		l.SetMultipathTCP(false)
		s.listener, err = l.Listen(tb.Context(), "tcp", "["+reflectorAddress+"]:179")
		return err
	}))
	tb.Cleanup(func() { _ = s.listener.Close() })
	return s
}

// routes is how many IPv6 routes the kernel has; it counts them itself (net/ipv6/route.c, rt6_stats_seq_show).
func (s *contentServer) routes() (n int) {
	s.Helper()
	s.in(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/rt6_stats")
		if err != nil {
			return err
		}
		x, err := strconv.ParseUint(strings.Fields(string(text))[3], 16, 32)
		n = int(x)
		return err
	})
	return n
}

// reached waits until there are so many routes.
func (s *contentServer) reached(want int) {
	s.Helper()
	for end := time.Now().Add(3 * time.Minute); s.routes() != want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%d routes, want %d", s.routes(), want)
		}
	}
}

// observed counts what happens to plait's routes, until it is told to stop.
func (s *contentServer) observed() (stop func() (deleted, added int)) {
	s.Helper()
	var conn *netlink.Conn
	s.in(func() (err error) {
		conn, err = netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: 1 << (unix.RTNLGRP_IPV6_ROUTE - 1)})
		return err
	})
	s.must(conn.SetReadBuffer(64 << 20))
	ended := make(chan error)
	deleted, added := 0, 0
	go func() {
		for {
			events, err := conn.Receive()
			if err != nil {
				ended <- err
				return
			}
			for _, e := range events {
				switch {
				case e.Data[5] != route.Protocol:
				case e.Header.Type == unix.RTM_DELROUTE:
					deleted++
				default:
					added++
				}
			}
		}
	}()
	return func() (int, int) {
		time.Sleep(100 * time.Millisecond)
		conn.Close()
		if err := <-ended; errors.Is(err, unix.ENOBUFS) {
			s.Error("the kernel had more events of routes than room for them")
		}
		return deleted, added
	}
}

// exitSection is the section of a configuration with so many exits.
func exitSection(exits int) string {
	section, _, _ := strings.Cut(fmt.Sprintf(egressSection, On), "    - {name:")
	for e := 1; e <= exits; e++ {
		section += fmt.Sprintf("    - {name: exit-%d, route_target: \"65000:1%d\", locators: \"2001:db8:f%d::/48\", addresses: \"2001:db8:1::a%d\"}\n", e, e, e, e)
	}
	return section
}

// full is what a reflector tells of so many prefixes through the exits, and in the default table, and how many routes that makes.
func (s *contentServer) full(exits, prefixes int, bestPath bool) (dump []byte, routes int) {
	s.Helper()
	for e := 1; e <= exits; e++ {
		dump = append(dump, s.table(e, prefixes)...)
	}
	routes = exits * prefixes
	if bestPath {
		dump = append(dump, s.table(0, prefixes)...)
		routes += 2 * prefixes // each has a standby
	}
	return append(dump, s.endOfTable()...), routes
}

// dumps brings a session up and writes. It returns when the session was established.
func (s *contentServer) dumps(dump []byte) time.Time {
	s.Helper()
	s.greet(restarting())
	established := time.Now()
	_, err := s.conn.Write(dump)
	s.must(err)
	return established
}

// A session breaks and comes back, and the reflector tells all again: no route in the kernel is touched meanwhile. Then it comes back and tells less: what it
// left out goes, and nothing else.
func TestSessionReset(t *testing.T) {
	const prefixes = 1000
	s := provider(t)
	all, routes := s.full(2, prefixes, true)
	less, fewer := s.full(2, prefixes-alike, true)
	p := s.up(exitSection(2))
	before := s.routes() + 2 // each exit's address is a route, too
	s.dumps(all)
	s.reached(before + routes)
	for _, c := range []struct {
		told []byte
		want int
	}{{all, routes}, {less, fewer}} {
		was := s.routes()
		stop := s.observed()
		s.must(s.conn.Close())
		s.dumps(c.told)
		s.say(s.announce(1, nth(prefixes).String())) // behind the end of RIB: what was told has been heard when this is in the kernel
		s.reached(before + c.want + 1)
		s.say(s.withdraw(1, nth(prefixes).String()))
		s.reached(before + c.want)
		if deleted, added := stop(); deleted-1 != was-before-c.want || added != 1 {
			t.Errorf("%d routes, told of %d again: %d were deleted and %d added", was-before, c.want, deleted-1, added-1)
		}
	}
	_, err := p.Stop(t.Context())
	s.must(err)
}

// A full IPv6 table through some exits, from the beginning of the session to the last route in the kernel, by the daemon as a user has it; then the session breaks
// and the reflector tells all again; then nothing happens for half a minute.
func BenchmarkFullTable(b *testing.B) {
	for _, c := range []struct {
		exits    int
		bestPath bool
	}{{1, false}, {2, false}, {4, false}, {4, true}} {
		b.Run(fmt.Sprintf("exits=%d/best-path=%t", c.exits, c.bestPath), func(b *testing.B) {
			s := provider(b)
			dump, routes := s.full(c.exits, fullTable, c.bestPath)
			for b.Loop() {
				s.fullTable(b, exitSection(c.exits), dump, s.routes()+c.exits+routes)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func (s *contentServer) fullTable(b *testing.B, section string, dump []byte, want int) {
	kernel := func() int { return s.kilobytes("/proc/meminfo", "Slab") + s.kilobytes("/proc/meminfo", "Percpu") }
	memory := kernel()
	p := s.up(section)
	cpu := func() float64 { return cpuOf(b, p.cmd.Process.Pid).Seconds() }
	report := func(n float64, unit string) { b.ReportMetric(n, unit) }
	used := cpu()
	began := s.dumps(dump)
	report(time.Since(began).Seconds(), "s-told")
	s.reached(want)
	report(time.Since(began).Seconds(), "s-to-kernel")
	report(cpu()-used, "cpu-s-to-kernel")
	report(float64(kernel()-memory)/1e6, "kernel-MB")

	stop := s.observed()
	s.must(s.conn.Close())
	used, began = cpu(), s.dumps(dump)
	s.say(s.announce(1, nth(fullTable).String()))
	s.reached(want + 1)
	report(time.Since(began).Seconds(), "s-again")
	report(cpu()-used, "cpu-s-again")
	deleted, added := stop()
	report(float64(deleted), "deleted-again")
	report(float64(added-1), "added-again")

	began, used = time.Now(), cpu()
	time.Sleep(30 * time.Second)
	report(100*(cpu()-used)/time.Since(began).Seconds(), "idle-%-of-a-core")
	report(float64(s.memory(p, "VmHWM"))/1e6, "MB-at-most")
	report(float64(s.memory(p, "VmRSS"))/1e6, "MB-at-the-end")

	began = time.Now()
	s.must(errors.Join(p.cmd.Process.Signal(unix.SIGTERM), p.cmd.Wait()))
	report(time.Since(began).Seconds(), "s-to-go-down")
}
