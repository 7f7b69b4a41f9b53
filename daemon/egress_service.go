package daemon

import (
	"net/netip"

	"plait.dev/plait/egress/mptcp"
)

// services finds the service of a connection.
type services struct {
	all      Service
	rules    []ServiceRule
	byPort   map[uint16]int
	prefixes map[netip.Prefix]int
	// byCgroup are the rules of connections that have one by their cgroup: the kernel half finds it with their first packet.
	byCgroup map[uint32]uint32
	fresh    []netip.Addr // clients of those just found
}

func newServices(c *Egress) services {
	s := services{all: c.Service, rules: c.Rules, byPort: map[uint16]int{}, prefixes: map[netip.Prefix]int{}, byCgroup: map[uint32]uint32{}}
	for i, r := range c.Rules {
		for _, p := range r.Ports {
			s.byPort[p] = i
		}
		for _, p := range r.Prefixes {
			s.prefixes[p] = i
		}
	}
	return s
}

// of goes by the port, then by the longest prefix, then by the nearest cgroup, as rules of congestion do.
func (s *services) of(p mptcp.Peer) Service {
	if i, ok := s.byPort[p.Own.Port()]; ok {
		return s.rules[i].Service
	}
	if i := s.byPrefix(p.Client); i >= 0 {
		return s.rules[i].Service
	}
	if i, ok := s.byCgroup[p.Token]; ok {
		return s.rules[i-1].Service
	}
	return s.all
}

// byPrefix is the rule with the longest prefix that has the client; -1: none has.
func (s *services) byPrefix(client netip.Addr) int {
	for bits := client.BitLen(); bits >= 0 && len(s.prefixes) > 0; bits-- {
		prefix, _ := client.Prefix(bits) // of no such length there is none
		if i, ok := s.prefixes[prefix]; ok {
			return i
		}
	}
	return -1
}

// ofClient are the services connections of a client can have, that of most of them first.
func (s *services) ofClient(client netip.Addr) []ServiceRule {
	most := ServiceRule{Service: s.all}
	prefix := s.byPrefix(client)
	if prefix >= 0 { // before cgroups, and before all
		most = s.rules[prefix]
	}
	out := []ServiceRule{most}
	for _, r := range s.rules {
		if len(r.Ports) > 0 || prefix < 0 && len(r.Cgroups) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// found replaces what is known of connections' cgroups, by what their flows say.
func (s *services) found(byCgroup map[uint32]uint32, clients map[uint32]netip.Addr) {
	for token, rule := range byCgroup {
		if s.byCgroup[token] != rule {
			s.fresh = append(s.fresh, clients[token])
		}
	}
	s.byCgroup = byCgroup
}

// newcomers are the clients of connections whose service has become known since the last call.
func (s *services) newcomers() []netip.Addr {
	out := s.fresh
	s.fresh = nil
	return out
}
