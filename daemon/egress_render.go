package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/egress/render"
)

func maskedPrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err == nil && (p != p.Masked() || p.Addr().Is4In6()) {
		err = errors.New("bits behind the length")
	}
	return p, err
}

// prefixes are of this network: never all there is, which would have its peers believed about nothing.
func prefixes(name string, into *[]netip.Prefix) key {
	return parsed(name, into, "IP prefixes longer than /0, without bits behind their length, like 2001:db8::/32", func(text string) (netip.Prefix, error) {
		p, err := maskedPrefix(text)
		if err == nil && p.Bits() == 0 {
			err = errors.New("every address")
		}
		return p, err
	})
}

// addressThat parses an address that fits.
func addressThat(fits func(netip.Addr) bool) func(string) (netip.Addr, error) {
	return func(text string) (netip.Addr, error) {
		a, err := netip.ParseAddr(text)
		if err == nil && !fits(a) {
			err = errors.New("another kind of address")
		}
		return a, err
	}
}

// locator reads one IPv6 prefix.
func locator(into *netip.Prefix) key {
	return key{"locator", func(r *reader, n *yaml.Node) {
		p, err := maskedPrefix(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || !p.Addr().Is6() {
			r.problem(n, "locator: %s: expected an IPv6 prefix without bits behind its length, like 2001:db8:f1::/48", what(n))
			return
		}
		*into = p
	}}
}

func (x *Egress) borderRouter(r *reader, n *yaml.Node) {
	var one render.BorderRouter
	r.mapping(n, "border_routers", []key{
		text("name", &one.Name, wrongName),
		address("router_id", &one.RouterID, "an IPv4 address, not 0.0.0.0", isRouterID),
		address("address", &one.Address, "an IPv6 address of the router", isUnicast6),
		locator(&one.Locator),
		text("interface", &one.Interface, wrongInterface),
		parsed("gateways", &one.Gateways, "an IP address of a router, without interface", addressThat(func(a netip.Addr) bool { return isUnicast(a) || a.IsLinkLocalUnicast() && a.Zone() == "" })),
		mappings("exits", func(r *reader, n *yaml.Node) { one.Peers = append(one.Peers, peer(r, n)) }),
	})
	x.BorderRouters = append(x.BorderRouters, one)
}

func peer(r *reader, n *yaml.Node) (p render.Peer) {
	r.mapping(n, "exits", []key{
		text("name", &p.Exit, wrongName),
		text("interface", &p.Interface, wrongInterface),
		number("as", &p.AS, 1<<32-1),
		parsed("addresses", &p.Addresses, "an IP address of the neighbour, no link-local one of IPv6", addressThat(func(a netip.Addr) bool { return isUnicast(a) || a.Is4() && a.IsLinkLocalUnicast() })),
		number("local_preference", &p.LocalPreference, 1<<32-1),
		number("max_prefixes", &p.MaxPrefixes, 1<<31-1),
		text("password_file", &p.PasswordFile, wrongFile),
		prefixes("announce", &p.Announce),
	})
	return p
}

// value is what a mapping has for a key that is there.
func value(n *yaml.Node, key string) *yaml.Node {
	n = resolve(n)
	i := 0
	for n.Content[i].Value != key { // of keys only: a value can be the same word
		i += 2
	}
	return resolve(n.Content[i+1])
}

// onServer is what a running plait goes by: without what is for plait egress render alone.
func (x Egress) onServer() Egress {
	x.Announce, x.Servers, x.BorderRouters = nil, nil, nil
	x.Reflectors = slices.Clone(x.Reflectors)
	for i := range x.Reflectors {
		x.Reflectors[i].Name, x.Reflectors[i].RouterID = "", netip.Addr{}
	}
	return x
}

// network is what the routers are rendered from, without passwords.
func (x *Egress) network() render.Network {
	n := render.Network{AS: x.AS, Exits: x.Exits, Announce: x.Announce, Servers: x.Servers, BorderRouters: x.BorderRouters}
	for i, r := range x.Reflectors {
		n.Reflectors = append(n.Reflectors, render.Reflector{Name: cmp.Or(r.Name, fmt.Sprint("reflector-", i+1)), RouterID: r.RouterID, Address: r.Address})
	}
	return n
}

// checkServer looks for what this server has and a router has, too, and whether reflectors expect it.
func (x *Egress) checkServer(r *reader, n *yaml.Node) {
	network := x.network()
	same := func(id netip.Addr, whose string) {
		if id == x.RouterID {
			r.problem(n, "egress: router_id: %v is of %s: expected one of no other BGP speaker", id, whose)
		}
	}
	for _, one := range network.Reflectors {
		same(one.RouterID, "reflector "+one.Name)
	}
	for _, b := range network.BorderRouters {
		same(b.RouterID, "border router "+b.Name)
		x.leave(r, n, b.Address, "border router "+b.Name)
		if b.Address == x.Address {
			r.problem(n, "egress: address: %v is of border router %s: expected one of this host alone", b.Address, b.Name)
		}
	}
	if len(x.Servers) > 0 && !slices.ContainsFunc(x.Servers, func(p netip.Prefix) bool { return p.Contains(x.Address) }) {
		r.problem(value(n, "servers"), "servers: none has address %v: the reflectors would refuse this server; expected one that has", x.Address)
	}
}

// checkNetwork looks for what contradicts each other, once all is read. n is the section.
func (x *Egress) checkNetwork(r *reader, n *yaml.Node) {
	for i, one := range x.Reflectors {
		if len(one.AOKeys) > 0 {
			r.problem(value(list(value(n, "reflectors"))[i], "ao_keys"), "ao_keys: border_routers are rendered for FRR, which has no TCP-AO: expected password_file, or no border_routers in this file")
		}
	}
	x.checkServer(r, n)
	network := x.network()
	routers := value(n, "border_routers")
	if err := network.Check(); err != nil {
		r.problem(routers, "%v", err)
	}
	for i, b := range network.BorderRouters {
		at := list(routers)[i]
		if err := network.CheckRouter(b); err != nil {
			r.problem(at, "border_routers: %v", err)
			continue
		}
		for j := range b.Peers {
			if err := network.CheckPeer(b, j); err != nil {
				r.problem(list(value(at, "exits"))[j], "border_routers: %v", err)
			}
		}
	}
}

// frrSecret is a password that one line of FRR's configuration can have.
func frrSecret(what, file string) (string, error) {
	password, err := secret(what, file)
	if err == nil && strings.ContainsFunc(password, func(r rune) bool { return r <= ' ' || r > '~' }) {
		err = fmt.Errorf("render the %s: %s: FRR takes printable ASCII characters without blanks", what, file)
	}
	return password, err
}

// Render makes the configuration of the network's border routers and reflectors.
func (x Egress) Render() ([]render.Router, error) {
	if len(x.BorderRouters) == 0 {
		return nil, errors.New("render border routers: the section egress of the configuration has none: list them as border_routers")
	}
	n := x.network()
	var err error
	for i, r := range x.Reflectors {
		if n.Reflectors[i].Password, err = frrSecret(fmt.Sprint("password for reflector ", r.Address), r.PasswordFile); err != nil {
			return nil, err
		}
	}
	n.BorderRouters = slices.Clone(n.BorderRouters)
	for i := range n.BorderRouters {
		b := &n.BorderRouters[i]
		b.Peers = slices.Clone(b.Peers)
		for j := range b.Peers {
			p := &b.Peers[j]
			if p.Password, err = frrSecret(fmt.Sprintf("password for exit %s of %s", p.Exit, b.Name), p.PasswordFile); err != nil {
				return nil, err
			}
		}
	}
	return n.Routers(), nil
}
