package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Tables of the network's namespace: by these routes packets go to the clients that come as they are, and those that come by SID.
const plainTable, sidTable = "100", "200"

// clientsBehind gives the network three clients in as many prefixes, and a fourth prefix with nobody in it. The best path to all leaves by exit a.
func (s *service) clientsBehind() (p *process, clients []string) {
	s.Helper()
	p = s.up(fmt.Sprintf(egressSection, On))
	s.greet()
	s.ip("-n " + s.network + " addr add fe80::1/64 dev e1 nodad") // what is forwarded asks for neighbours from there
	s.ip("-n " + s.network + " -6 rule add iif e1 lookup " + plainTable)
	for _, f := range []string{"f1", "f2"} {
		s.ip("-n " + s.network + " -6 route replace 2001:db8:" + f + ":1::/128 encap seg6local action End.DT6 table " + sidTable + " dev e1")
	}
	for i := 1; i <= 4; i++ {
		prefix := fmt.Sprintf("2001:db8:c%d::", i)
		c := s.second(fmt.Sprintf("-c%d", i))
		s.ip(fmt.Sprintf("-n %s link add m%d type veth peer name u0 netns %s", s.network, i, c.ns))
		m := fmt.Sprint("m", i)
		for _, command := range []string{s.network + " link set " + m + " addrgenmode none up", s.network + " addr add " + prefix + "1/64 dev " + m + " nodad", s.network + " addr add fe80::1/64 dev " + m + " nodad",
			c.ns + " link set u0 addrgenmode none up", c.ns + " addr add " + prefix + "2/64 dev u0 nodad", c.ns + " -6 route add default via " + prefix + "1",
			c.ns + " mptcp limits set subflow 8 add_addr_accepted 8"} {
			s.ip("-n " + command)
		}
		for _, table := range []string{plainTable, sidTable} {
			s.ip(fmt.Sprintf("-n %s -6 route add %s/64 dev %s table %s", s.network, prefix, m, table))
		}
		for exit, as := range []uint32{64496, 64496, 64497} {
			told := s.announce(exit, prefix+"/48")
			told.Body.(*wire.BGPUpdate).PathAttributes[1] = wire.NewPathAttributeAsPath([]wire.AsPathParamInterface{wire.NewAs4PathParam(wire.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{as, 64500})})
			s.say(told)
		}
		clients = append(clients, c.ns)
	}
	for _, f := range reflectorFamilies {
		s.say(wire.NewEndOfRib(f))
	}
	s.eventually(20*time.Second, "the daemon has settled with all routes", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.Settled && e.Main == 4 && e.Standby == 4
	})
	return p, clients
}

// An exit that dies silently for all is found out by three clients' connections, and taken out of the main table for those who have none, too. It comes back when a client has come through it.
func TestEgressExitOut(t *testing.T) {
	s := newService(t)
	p, clients := s.clientsBehind()
	best := func(i int) string { return fmt.Sprintf("2001:db8:c%d::/48 via %s dev e0 .*metric 4112", i, hopAddress) }
	for i := range clients {
		s.has(true, plaitsRoutes, best(i+1))
	}
	for i, ns := range clients[:3] {
		s.beginFrom(ns, fmt.Sprintf("2001:db8:c%d::2", i+1), serverAddress)
	}
	s.eventually(20*time.Second, "each client has a subflow by exit b", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.MPTCP.Subflows == 6
	})
	s.ip("-n " + s.network + " -6 route add blackhole 2001:db8:f1:1::/128 metric 1")
	for i := range clients {
		s.ip(fmt.Sprintf("-n %s -6 route add blackhole 2001:db8:c%d::/64 table %s metric 1", s.network, i+1, plainTable))
	}
	s.eventually(20*time.Second, "exit a is out", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.Exits[0].Out != nil && e.Exits[1].Out == nil
	})
	for i := range clients {
		s.has(false, plaitsRoutes, best(i+1))
	}
	s.ip("-n " + s.network + " -6 route del blackhole 2001:db8:f1:1::/128 metric 1")
	for i := range clients {
		s.ip(fmt.Sprintf("-n %s -6 route del blackhole 2001:db8:c%d::/64 table %s metric 1", s.network, i+1, plainTable))
	}
	s.eventually(time.Minute, "exit a is out no more", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.Exits[0].Out == nil
	})
	s.has(true, plaitsRoutes, best(4))
}

// Answers to packets through an exit may come by another interface than the one that is watched, as where two uplinks lead to two border routers: the exit is well.
func TestEgressAnswersElsewhere(t *testing.T) {
	s := newService(t)
	s.ip("-n " + s.ns + " link add e2 type veth peer name e3 netns " + s.network)
	for _, command := range []string{s.ns + " link set e2 addrgenmode none up", s.ns + " addr add 2001:db8:2::10/64 dev e2 nodad",
		s.network + " link set e3 addrgenmode none up", s.network + " addr add 2001:db8:2::1/64 dev e3 nodad", s.network + " addr add fe80::3/64 dev e3 nodad", s.ns + " addr add fe80::2/64 dev e2 nodad",
		s.network + " -6 route replace " + exitAddress + "/128 via 2001:db8:2::10 dev e3 src " + clientAddress} {
		s.ip("-n " + command)
	}
	p := s.tells(On)
	seldom := s.dialFrom(s.network, clientAddress, exitAddress)
	defer seldom.close()
	s.eventually(20*time.Second, "the client has come through exit b, too", func() bool {
		e, err := p.Egress()
		s.must(err)
		return e.MPTCP.Subflows >= 2
	})
	for range 4 { // each ends with a pause, in which the socket alone knows that all is answered
		s.must(send(seldom.server, 0, 100_000))
		s.must(receive(seldom.client, 0, 100_000))
		time.Sleep(1200 * time.Millisecond)
	}
	log, err := p.EgressLog()
	s.must(err)
	for _, e := range log {
		if strings.Contains(e.Text, "does not bring packets") || strings.Contains(e.Text, "betting") {
			t.Error(e.Text)
		}
	}
}
