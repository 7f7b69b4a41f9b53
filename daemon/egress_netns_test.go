package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/egress/route"
	"plait.dev/plait/internal/rung"
)

// The content server of these tests: one network namespace with an interface, on which the route reflector is, too.
const (
	serverAddress    = "2001:db8:1::10"
	reflectorAddress = "2001:db8:1::2"
	hopAddress       = "2001:db8:1::1"
	earlierSource    = "2001:db8:1::99" // of tunnels, before plait
)

// What shows the state of the lever.
const (
	plaitsRoutes = "ip -6 route show table all proto 112"
	pathManager  = "grep -r . /proc/sys/net/mptcp"
)

// egressSection leaves no connection on the best path for comparison: one in 20 would not do what a test waits for.
const egressSection = `  mode: off
egress:
  mode: %s
  as: 65000
  router_id: 10.0.0.10
  address: "` + serverAddress + `"
  interface: e0
  holdout_percent: 0
  reflectors:
    - {address: "` + reflectorAddress + `"}
  exits:
    - {name: transit-a, route_target: "65000:11", locators: "2001:db8:f1::/48", addresses: "2001:db8:1::a"}
    - {name: transit-b, route_target: "65000:12", locators: "2001:db8:f2::/48", addresses: "2001:db8:1::b"}
`

// contentServer is one; its reflector says what a test tells it to.
type contentServer struct {
	*host
	listener net.Listener
	conn     net.Conn
}

func newContentServer(t *testing.T) *contentServer {
	t.Helper()
	rung.Netns(t)
	for _, a := range route.Probe() {
		if a.Err != nil {
			t.Skipf("this kernel lacks what the exits' routes need: %v", a.Err)
		}
	}
	if lacks := mptcp.Probe(); len(lacks) > 0 {
		t.Skipf("this kernel lacks what the exits' subflows need: %s", lacks[0].What)
	}
	s := &contentServer{host: newHost(t)}
	s.ip("-n " + s.ns + " link add e0 type veth peer name e1")
	for _, end := range []string{"e0", "e1"} {
		s.ip("-n " + s.ns + " link set " + end + " addrgenmode none up")
	}
	for _, a := range []string{serverAddress, reflectorAddress, earlierSource} {
		s.ip("-n " + s.ns + " addr add " + a + "/64 dev e0 nodad")
	}
	for _, a := range []string{serverAddress, reflectorAddress, earlierSource} {
		s.has(true, "ip -6 route show table local", "local "+a+" ")
	}
	s.show("ip sr tunsrc set " + earlierSource)
	s.in(func() (err error) {
		var l net.ListenConfig
		l.SetMultipathTCP(false)
		s.listener, err = l.Listen(t.Context(), "tcp", "["+reflectorAddress+"]:179")
		return err
	})
	t.Cleanup(func() { _ = s.listener.Close() })
	return s
}

// show is what a command says in the namespace, its lines sorted.
func (s *contentServer) show(command string) []string {
	s.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", s.ns}, strings.Fields(command)...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", command, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return lines
}

// everything the lever may change in the namespace.
func (s *contentServer) everything() (all []string) {
	s.Helper()
	for _, command := range []string{"ip -6 route show table all", "ip -4 route show table all",
		"ip -6 rule", "ip -4 rule", "ip -o addr", "ip nexthop",
		"ip sr tunsrc show", pathManager} {
		all = append(all, s.show(command)...)
	}
	return all
}

// same says what there is too much of, and what is missing.
func (s *contentServer) same(what string, before []string) {
	s.Helper()
	after := s.everything()
	for _, line := range after {
		if !slices.Contains(before, line) {
			s.Errorf("%s: too much: %s", what, line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			s.Errorf("%s: missing: %s", what, line)
		}
	}
}

// has waits until a command says a line that matches, or until it does not.
func (s *contentServer) has(there bool, command, pattern string) {
	s.Helper()
	s.eventually(20*time.Second, fmt.Sprintf("%s says %q: %v", command, pattern, there), func() bool {
		return slices.ContainsFunc(s.show(command), regexp.MustCompile("^"+pattern).MatchString) == there
	})
}

var reflectorFamilies = []wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC, wire.RF_IPv4_VPN, wire.RF_IPv6_VPN}

// greet brings the next session up, without keepalives, with a reflector that has some more capabilities.
func (s *contentServer) greet(more ...wire.ParameterCapabilityInterface) {
	s.Helper()
	s.must(s.listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))
	conn, err := s.listener.Accept()
	s.must(err)
	s.conn = conn
	s.Cleanup(func() { _ = conn.Close() })
	capabilities := append(more, wire.NewCapFourOctetASNumber(65000))
	for _, f := range reflectorFamilies {
		capabilities = append(capabilities, wire.NewCapMultiProtocol(f))
	}
	open, err := wire.NewBGPOpenMessage(65000, 0, netip.MustParseAddr("10.0.0.1"), []wire.OptionParameterInterface{wire.NewOptionParameterCapability(capabilities)})
	s.must(err)
	s.say(open, wire.NewBGPKeepAliveMessage())
	go func() { _, _ = io.Copy(io.Discard, conn) }()
}

func (s *contentServer) say(messages ...*wire.BGPMessage) {
	s.Helper()
	for _, m := range messages {
		raw, err := m.Serialize()
		s.must(err)
		_, err = s.conn.Write(raw)
		s.must(err)
	}
}

// way is a route as the reflector tells it: of an exit by its number, or of the default table with 0.
func (s *contentServer) way(exit int, prefix string) (wire.Family, wire.PathNLRI) {
	s.Helper()
	p := netip.MustParsePrefix(prefix)
	if exit == 0 {
		nlri, err := wire.NewIPAddrPrefix(p)
		s.must(err)
		return wire.RF_IPv6_UC, wire.PathNLRI{NLRI: nlri}
	}
	rd, err := wire.ParseRouteDistinguisher(fmt.Sprint("65000:1", exit))
	s.must(err)
	nlri, err := wire.NewLabeledVPNIPAddrPrefix(p, *wire.NewMPLSLabelStack(3), rd) // implicit null: the SID is whole
	s.must(err)
	return wire.RF_IPv6_VPN, wire.PathNLRI{NLRI: nlri}
}

func (s *contentServer) announce(exit int, prefix string) *wire.BGPMessage {
	s.Helper()
	family, nlri := s.way(exit, prefix)
	reach, err := wire.NewPathAttributeMpReachNLRI(family, []wire.PathNLRI{nlri}, netip.MustParseAddr(hopAddress))
	s.must(err)
	attributes := []wire.PathAttributeInterface{
		wire.NewPathAttributeOrigin(0),
		wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64496})}),
		wire.NewPathAttributeLocalPref(100),
	}
	if exit != 0 {
		target, err := wire.ParseRouteTarget(fmt.Sprint("65000:1", exit))
		s.must(err)
		at := netip.MustParseAddr(fmt.Sprintf("2001:db8:f%d:1::", exit))
		sid := wire.NewSRv6InformationSubTLV(at, wire.END_DT6, wire.NewSRv6SIDStructureSubSubTLV(32, 16, 16, 0, 0, 0))
		attributes = append(attributes, wire.NewPathAttributeExtendedCommunities([]wire.ExtendedCommunityInterface{target}),
			wire.NewPathAttributePrefixSID(wire.NewSRv6ServiceTLV(wire.TLVTypeSRv6L3Service, sid)))
	}
	return wire.NewBGPUpdateMessage(nil, append(attributes, reach), nil)
}

func (s *contentServer) withdraw(exit int, prefix string) *wire.BGPMessage {
	s.Helper()
	family, nlri := s.way(exit, prefix)
	unreach, err := wire.NewPathAttributeMpUnreachNLRI(family, []wire.PathNLRI{nlri})
	s.must(err)
	return wire.NewBGPUpdateMessage(nil, []wire.PathAttributeInterface{unreach}, nil)
}

// tells brings the daemon up in a mode, and tells it of a client that both exits reach, and of one that only the second does.
func (s *contentServer) tells(mode Mode) *process {
	s.Helper()
	p := s.up(fmt.Sprintf(egressSection, mode))
	s.greet()
	for _, f := range reflectorFamilies[:2] {
		s.say(wire.NewEndOfRib(f))
	}
	s.say(s.announce(1, "2001:db8:c::/48"), s.announce(2, "2001:db8:c::/48"), s.announce(2, "2001:db8:d::/48"), s.announce(0, "2001:db8:c::/48"))
	for _, f := range reflectorFamilies[2:] {
		s.say(wire.NewEndOfRib(f))
	}
	s.eventually(20*time.Second, "the daemon has settled with all routes", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.Settled && e.Main == 1 && e.Exits[0].Routes == 1 && e.Exits[1].Routes == 2
	})
	return p
}

// installed checks what the kernel has of the routes of tells.
func (s *contentServer) installed() {
	s.Helper()
	s.has(true, "ip -6 rule", "500: from 2001:db8:1::a lookup 11200")
	s.has(true, "ip -6 rule", "501: from 2001:db8:1::a unreachable")
	s.has(true, "ip -6 rule", "500: from 2001:db8:1::b lookup 11201")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 nhid .* 2001:db8:f1:1:: .* table 11200 ")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 nhid .* 2001:db8:f2:1:: .* table 11201 ")
	s.has(true, plaitsRoutes, "2001:db8:d::/48 nhid .* 2001:db8:f2:1:: .* table 11201 ")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 via "+hopAddress+" dev e0 .*metric 4112")
	s.has(true, "ip sr tunsrc show", "tunsrc addr "+serverAddress)
	for _, exit := range []string{"a", "b"} { // the kernel adds these on its own time
		s.has(true, "ip -6 route show table local", "local 2001:db8:1::"+exit+" ")
	}
}

// Mode observe hears everything and changes nothing.
func TestEgressObserves(t *testing.T) {
	s := newContentServer(t)
	before := s.everything()
	p := s.tells(Observe)
	s.same("mode observe", before)
	if e := s.status(p).Egress; e == nil || *e != (EgressSummary{Mode: Observe, Exits: 2, Sessions: 1, Up: 1, Routes: 4}) {
		t.Errorf("status: %+v, want 2 exits, a session that is up, 4 routes", e)
	}
	s.say(s.withdraw(1, "2001:db8:c::/48"))
	for _, want := range []string{"would add 1 routes to the main table", "would delete route 2001:db8:c::/48 in table 11200, of exit transit-a, by SID "} {
		s.eventually(20*time.Second, "the log has "+want, func() bool {
			log, err := p.EgressLog()
			return err == nil && slices.ContainsFunc(log, func(e JournalEntry) bool { return strings.HasPrefix(e.Text, want) })
		})
	}
	s.same("mode observe, after a withdrawal", before)
	var record strings.Builder
	s.must(p.EgressFlows(t.Context(), 0.3, &record)) // by a daemon that has given up most of its rights
	if traffic, err := p.EgressTraffic(); err != nil || len(traffic.Exits) != 2 || !strings.HasPrefix(record.String(), "time_s,") {
		t.Errorf("traffic: %+v, %v, record: %q", traffic, err, record.String())
	}
	_, err := p.Stop(t.Context())
	s.must(err)
	s.same("after down", before)
}

// Mode on puts everything in place, follows the reflector, and takes everything back.
func TestEgressOn(t *testing.T) {
	s := newContentServer(t)
	before := s.everything()
	p := s.tells(On)
	s.installed()
	s.has(true, pathManager, ".*/(pm_type:1|path_manager:userspace)$")
	s.reload(p, fmt.Sprintf(egressSection, On)+"  strategy: cheap\n")
	if e, err := p.EgressExplain("2001:db8:c::1"); err != nil || len(e.Services) != 1 || e.Services[0].Strategy != egress.Cheap {
		t.Errorf("with another strategy since the reload: %+v, %v", e.Services, err)
	}
	s.installed()
	s.say(s.withdraw(1, "2001:db8:c::/48"))
	s.has(false, plaitsRoutes, ".* table 11200 ")
	s.has(true, plaitsRoutes, "2001:db8:c::/48 nhid .* table 11201 ")
	s.has(true, "ip -6 rule", "500: from 2001:db8:1::a lookup 11200") // which now is unreachable
	s.must(s.conn.Close())
	s.has(false, plaitsRoutes, "2001:db8:")
	_, err := p.Stop(t.Context())
	s.must(err)
	s.must(p.cmd.Wait())
	s.same("after down", before)
	left, err := filepath.Glob(p.Path() + ".[pt]*") // path-manager, tunnel-source
	if err != nil || len(left) > 0 {
		t.Errorf("after down the directory holds %v, %v", left, err)
	}
}

// What a killed daemon leaves is found by the next one, and goes with plait down, whether a daemon is up or not. Until then packets of the exits' addresses
// take the best path.
func TestEgressKilled(t *testing.T) {
	s := newContentServer(t)
	before := s.everything()
	p := s.tells(On)
	s.installed()
	installed := s.everything()
	released := slices.DeleteFunc(slices.Clone(installed), regexp.MustCompile("^50[01]: from 2001:db8:1::[ab] .*proto 112").MatchString)
	p.kill()
	s.same("after kill -9", released)
	for _, rule := range []string{"from 2001:db8:1::a lookup 11200", "from 2001:db8:1::b unreachable"} { // as if the helper had been killed, too
		s.show("ip -6 rule add pref 500 " + rule + " protocol 112")
	}
	for range 2 { // systemd starts plait again
		s.in(func() error { _, err := Cleanup(p.Path(), false); return err })
		s.same("between kill -9 and the next one", released)
	}
	p = s.tells(On)
	s.same("with the next one", installed)
	p.kill()
	if n := s.cleanup(p).Exits; n == 0 {
		t.Error("nothing to remove, want the routes, rules and addresses that are there")
	}
	s.same("after plait down", before)
	if n := s.cleanup(p).Exits; n != 0 {
		t.Errorf("%d changes by another plait down, want none", n)
	}
	p = s.tells(On)
	s.installed()
	p.kill()
	p = s.tells(Observe) // which does not take over, and would not follow BGP with what is there
	s.same("observed after kill -9", before)
	_, err := p.Stop(t.Context())
	s.must(err)
	p = s.tells(On)
	s.installed()
	p.kill()
	p = s.up("  mode: off\n")
	s.same("with no exits after kill -9", before)
	_, err = p.Stop(t.Context())
	s.must(err)
}

// One plait has the exits of a network namespace. Another does not come up there, and plait down for another takes nothing away, whatever its control socket is.
func TestOneHasExits(t *testing.T) {
	s := newContentServer(t)
	p := s.tells(On)
	s.installed()
	installed := s.everything()
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "another plait has the BGP exits of this network namespace") {
			t.Errorf("%s: %v, want that another plait has the exits", what, err)
		}
		s.same(what, installed)
	}
	locked := func(want bool) {
		t.Helper()
		s.in(func() error {
			if got := exitsLocked(); got != want {
				t.Errorf("the exits are locked: %v, want %v", got, want)
			}
			return nil
		})
	}
	locked(true)
	other := filepath.Join(s.dir, "other")
	_, err := s.try(other, fmt.Sprintf(egressSection, Observe))
	refused("another plait up", err)
	s.in(func() error { _, err = Cleanup(other, true); return nil })
	refused("plait down of another", err)
	p.kill()
	s.eventually(20*time.Second, "the helper has ended, too, and plait down works", func() bool {
		s.in(func() error { _, err = Cleanup(other, true); return nil })
		return err == nil
	})
	locked(false)
}

// Where flows cannot be watched nothing is compared. What was noted of connections goes all the same, and so does what a plait before this one decided.
func TestForgetsWithoutFlows(t *testing.T) {
	h := newContentServer(t)
	x := choosing(t, Service{egress.Latency, 5})
	h.in(func() (err error) { x.mptcp, err = mptcp.Open(mptcp.Config{Reachable: x.reachable}); return err })
	x.quiet = time.NewTimer(time.Hour)
	now := time.Now()
	network := netip.MustParsePrefix("2001:db8:c::/48")
	x.worth = egress.NewWorth([]egress.Known{{Prefix: network, Strategy: egress.Latency, OneUntil: now.Add(2 * time.Second), Rest: time.Hour}}, now)
	x.quickest[chooser] = quickExit{"b", now.Add(-time.Hour)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.run(ctx) }()
	defer func() { stop(); h.must(<-ended) }()
	h.eventually(10*time.Second, "nothing is remembered", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, quick := x.quickest[chooser]
		return !quick && !x.worth.One(network, egress.Latency)
	})
}
