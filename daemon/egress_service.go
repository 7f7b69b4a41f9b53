package daemon

import (
	"net/netip"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// services finds the service of a connection.
type services struct {
	all      Service
	rules    []ServiceRule
	byPort   map[uint16]int
	prefixes map[netip.Prefix]int
	cgroups  map[uint32]int // by number
	// numbers are those of cgroups that rules name, or did: the kernel half keeps that of a connection's cgroup with its first packet. None has two meanings.
	numbers map[uint64]uint32
	// byCgroup are the numbers of connections that have one.
	byCgroup map[uint32]uint32
	fresh    []netip.Addr // clients of those just found
}

// holdouts are the percentages held out of the connections under each strategy, of all services that have it, in their order.
func (x Egress) holdouts() map[egress.Strategy][]float64 {
	out := map[egress.Strategy][]float64{x.Strategy: {x.HoldoutPercent}}
	for _, r := range x.Rules {
		out[r.Strategy] = append(out[r.Strategy], r.HoldoutPercent)
	}
	return out
}

// become puts the services of a configuration in the place of those there are, if any. What is known of connections stays.
func (s *services) become(c *Egress) {
	s.all, s.rules, s.byPort, s.prefixes, s.cgroups = c.Service, c.Rules, map[uint16]int{}, map[netip.Prefix]int{}, map[uint32]int{}
	for i, r := range c.Rules {
		for _, p := range r.Ports {
			s.byPort[p] = i
		}
		for _, p := range r.Prefixes {
			s.prefixes[p] = i
		}
		for _, id := range r.Cgroups {
			if s.numbers[id] == 0 {
				s.numbers[id] = uint32(len(s.numbers) + 1)
			}
			s.cgroups[s.numbers[id]] = i
		}
	}
}

// of goes by the port, then by the longest prefix, then by the nearest cgroup, as rules of congestion do.
func (s *services) of(p mptcp.Peer) Service {
	if i, ok := s.byPort[p.Own.Port()]; ok {
		return s.rules[i].Service
	}
	if i := s.byPrefix(p.Client); i >= 0 {
		return s.rules[i].Service
	}
	if i, ok := s.cgroups[s.byCgroup[p.Token]]; ok {
		return s.rules[i].Service
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

// news are the clients of connections whose flows say another cgroup than is known.
func (s *services) news(byCgroup map[uint32]uint32, clients map[uint32]netip.Addr) (fresh []netip.Addr) {
	for token, cgroup := range byCgroup {
		if s.byCgroup[token] != cgroup {
			fresh = append(fresh, clients[token])
		}
	}
	return fresh
}

// found replaces what is known of connections' cgroups; fresh are the news.
func (s *services) found(byCgroup map[uint32]uint32, fresh []netip.Addr) {
	s.byCgroup, s.fresh = byCgroup, append(s.fresh, fresh...)
}

// newcomers are the clients of connections whose service has become known since the last call.
func (s *services) newcomers() []netip.Addr {
	out := s.fresh
	s.fresh = nil
	return out
}
