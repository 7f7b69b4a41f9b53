package daemon

import (
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/egress"
)

// pool is a prefix from which an exit's address of this host is taken.
type pool struct {
	netip.Prefix
	exit int // its index
	node *yaml.Node
}

// addressOrPrefix takes an address for the prefix of itself.
func addressOrPrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return maskedPrefix(text)
}

// of is the address in the pool that has the bits of another one behind the prefix; not valid if those are all 0.
func (p pool) of(host netip.Addr) netip.Addr {
	network, bytes, some := p.Addr().AsSlice(), host.AsSlice(), false
	for i := range network {
		here := byte(0xff) >> min(max(p.Bits()-8*i, 0), 8) // the bits of this byte that are behind the prefix
		network[i] |= bytes[i] & here
		some = some || bytes[i]&here != 0
	}
	if !some {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(network)
	return a
}

// announced says whether all of a pool is, by all exits or by its own.
func (x *Egress) announced(p pool) bool {
	all := slices.Clone(x.Announce)
	for _, b := range x.BorderRouters {
		for _, peer := range b.Peers {
			if peer.Exit == x.Exits[p.exit].Name {
				all = append(all, peer.Announce...)
			}
		}
	}
	return slices.ContainsFunc(all, func(a netip.Prefix) bool { return a.Bits() <= p.Bits() && a.Contains(p.Addr()) })
}

// take takes the exits' addresses out of their pools: by this host's address, and those of IPv4 by its router ID. So one configuration serves all servers but for these
// two keys, if the bits behind the prefix are of no other server.
func (x *Egress) take(r *reader, pools []pool) {
	for _, p := range pools {
		host, key := x.Address, "address"
		if p.Addr().Is4() {
			host, key = x.RouterID, "router_id"
		}
		a := p.of(host)
		if !a.IsValid() {
			r.problem(p.node, "exits: addresses: %v: the address taken from it has the bits of %s (%v) behind the prefix, and they are all 0: expected a shorter prefix, or an address", p.Prefix, key, host)
			return
		}
		if len(x.BorderRouters) > 0 && !x.announced(p) {
			r.problem(p.node, "exits: addresses: %v: no prefix of announce, the network's or this exit's, has all of it: answers to some servers would never come; expected one that has", p.Prefix)
			return
		}
		x.Exits[p.exit].Addresses = append(x.Exits[p.exit].Addresses, a)
		if err := egress.CheckExits(x.Exits); err != nil {
			r.problem(p.node, "exits: %v", err)
			return
		}
	}
}
