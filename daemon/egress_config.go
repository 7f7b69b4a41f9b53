package daemon

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/render"
)

// firstTable is the routing table of the first exit; the others follow in the order of the file. No distribution uses them.
const firstTable = 11200

// Egress is how the BGP exit of packets is chosen. Without reflectors the lever is not there.
type Egress struct {
	Mode Mode
	// AS is this network's; the reflectors are in it too.
	AS uint32
	// RouterID is an IPv4 address, of no other BGP speaker of the network.
	RouterID netip.Addr
	// Address of this host: BGP sessions and tunnels come from it.
	Address netip.Addr
	// Interface gets the addresses of the exits.
	Interface  string
	Reflectors []Reflector
	Exits      []egress.Exit
	Service
	// Rules are exceptions from Service.
	Rules []ServiceRule
	// MovedPercent is how much of what this host sends may leave by other exits than BGP's best, more or less: beyond it connections begin without them.
	MovedPercent float64
	// Announce, Servers and BorderRouters are for plait egress render alone.
	Announce, Servers []netip.Prefix
	BorderRouters     []render.BorderRouter
}

// there is the lever if it has exits and is not off.
func (x Egress) there() bool { return len(x.Exits) > 0 && x.Mode != Off }

// Service is what connections want of the exits.
type Service struct {
	Strategy egress.Strategy
	// HoldoutPercent of the connections have BGP's best path alone, so that what the others gain is measured.
	HoldoutPercent float64
}

// ServiceRule is a service of its own for some connections.
type ServiceRule struct {
	Selection
	Service
}

// Reflector is a BGP route reflector to hear from.
type Reflector struct {
	Address netip.Addr
	// PasswordFile holds the password of the session (TCP-MD5); empty: none.
	PasswordFile string
	// AOKeys are those of TCP-AO, instead of a password: the first signs until the reflector asks for another.
	AOKeys []AOKey
	// MaxPrefixes is how many routes it may tell of; 0: bgp's default.
	MaxPrefixes int
	// Name (reflector-1 without) and RouterID are for plait egress render alone; without RouterID it does not configure this reflector.
	Name     string
	RouterID netip.Addr
}

func number[T int | uint32](name string, into *T, most uint64) key {
	return key{name, func(r *reader, n *yaml.Node) {
		x, err := strconv.ParseUint(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil || x == 0 || x > most {
			r.problem(n, "%s: %s: expected a number from 1 to %d", name, what(n), most)
			return
		}
		*into = T(x)
	}}
}

func address(name string, into *netip.Addr, expected string, fits func(netip.Addr) bool) key {
	return key{name, func(r *reader, n *yaml.Node) {
		a, err := netip.ParseAddr(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || !fits(a) {
			r.problem(n, "%s: %s: expected %s", name, what(n), expected)
			return
		}
		*into = a
	}}
}

func isUnicast(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.Is4In6() && a.Zone() == "" }

func isRouterID(a netip.Addr) bool { return a.Is4() && !a.IsUnspecified() }

func isUnicast6(a netip.Addr) bool { return isUnicast(a) && a.Is6() }

// parsed reads one value or a list of them.
func parsed[T any](name string, into *[]T, expected string, parse func(string) (T, error)) key {
	return key{name, func(r *reader, n *yaml.Node) {
		for _, e := range list(n) {
			v, err := parse(e.Value)
			if e.Kind != yaml.ScalarNode || err != nil {
				r.problem(e, "%s: %s: expected %s", name, what(e), expected)
				continue
			}
			*into = append(*into, v)
		}
	}}
}

// mappings reads a list of mappings, one call of read for each.
func mappings(name string, read func(*reader, *yaml.Node)) key {
	return key{name, func(r *reader, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			r.problem(n, "%s: %s: expected a list", name, what(n))
			return
		}
		for _, e := range list(n) {
			read(r, e)
		}
	}}
}

// wrongRouteTarget takes what a route can carry (RFC 4360, 5668), written as routes are compared with it.
func wrongRouteTarget(s string) string {
	if byAddress, err := netip.ParseAddrPort(s); err == nil && byAddress.Addr().Is4() && byAddress.String() == s {
		return ""
	}
	left, right, _ := strings.Cut(s, ":")
	as, badAS := strconv.ParseUint(left, 10, 32)
	local, badLocal := strconv.ParseUint(right, 10, 32)
	if badAS != nil || badLocal != nil || s != fmt.Sprint(as, ":", local) {
		return "expected a route target like \"65000:11\" or \"192.0.2.1:11\""
	}
	if as > math.MaxUint16 && local > math.MaxUint16 {
		return "expected a route target with one number of at most 65535: both have 6 bytes"
	}
	return ""
}

func wrongName(s string) string {
	if s == "" || len(s) > 32 || s != strings.TrimSpace(s) || s == "-" || strings.ContainsFunc(s, unicode.IsControl) { // a dash stands for none
		return "expected a name of at most 32 bytes, without control characters or blanks around it, and not a dash alone"
	}
	return ""
}

func wrongInterface(s string) string {
	if s == "" || len(s) > 15 || strings.ContainsAny(s, "/ ") {
		return "expected the name of a network interface"
	}
	return ""
}

func wrongFile(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "expected the absolute path of a file"
	}
	return ""
}

func (x *Egress) reflector(r *reader, n *yaml.Node) {
	var one Reflector
	before := len(r.problems)
	r.mapping(n, "reflectors", []key{
		address("address", &one.Address, "an IP address", isUnicast),
		text("password_file", &one.PasswordFile, wrongFile),
		aoKeys(&one.AOKeys),
		number("max_prefixes", &one.MaxPrefixes, 1<<31-1),
		text("name", &one.Name, wrongName),
		address("router_id", &one.RouterID, "an IPv4 address, not 0.0.0.0", isRouterID),
	})
	switch {
	case len(r.problems) > before:
	case !one.Address.IsValid():
		r.problem(n, "reflectors: no address: expected one")
	case one.PasswordFile != "" && len(one.AOKeys) > 0:
		r.problem(n, "reflectors: password_file and ao_keys: expected one of them: a session has TCP-MD5 or TCP-AO")
	case slices.ContainsFunc(x.Reflectors, func(o Reflector) bool { return o.Address == one.Address }):
		r.problem(n, "reflectors: %v: expected each address once", one.Address)
	}
	x.Reflectors = append(x.Reflectors, one)
}

func (x *Egress) exit(r *reader, n *yaml.Node, pools *[]pool) {
	var from []netip.Prefix
	one := egress.Exit{Table: firstTable + uint32(len(x.Exits))}
	before := len(r.problems)
	r.mapping(n, "exits", []key{
		text("name", &one.Name, wrongName),
		text("route_target", &one.RouteTarget, wrongRouteTarget),
		parsed("locators", &one.Locators, "an IPv6 prefix without bits behind its length, like 2001:db8:f1::/48", maskedPrefix),
		parsed("sids", &one.SIDs, "an IPv6 address, like 2001:db8:f1:0:40::", netip.ParseAddr),
		parsed("addresses", &from, "an IP address, or a prefix without bits behind its length to take it from", addressOrPrefix),
		number("cost", &one.Cost, 1_000_000),
		quantity("cap_mbps", 1e6, "Mbit/s of this host's traffic", func(v float64) { one.CapMbps = v }),
	})
	if len(r.problems) > before {
		return
	}
	for _, p := range from {
		if p.IsSingleIP() {
			one.Addresses = append(one.Addresses, p.Addr())
		} else {
			*pools = append(*pools, pool{p, len(x.Exits), n})
		}
	}
	x.Exits = append(x.Exits, one)
	if err := egress.CheckExits(x.Exits); err != nil {
		r.problem(n, "exits: %v", err)
		x.Exits = x.Exits[:len(x.Exits)-1] // else the next one's line would have it, too
	}
}

// keys of what a service and its exceptions have in common.
func (s *Service) keys() []key {
	words := make([]string, len(egress.Strategies()))
	for i, x := range egress.Strategies() {
		words[i] = string(x)
	}
	return []key{oneOf("strategy", &s.Strategy, words...), percent(func(p float64) { s.HoldoutPercent = p })}
}

// rule reads an exception. What it leaves out is as for all connections, wherever in the section that stands.
func (x *Egress) rule(r *reader, n *yaml.Node) {
	var one ServiceRule
	one.HoldoutPercent = -1
	r.rule(n, &one.Selection, one.Service.keys()...)
	x.Rules = append(x.Rules, one)
}

// complete fills in what rules leave out.
func (x *Egress) complete() {
	for i := range x.Rules {
		if x.Rules[i].Strategy == "" {
			x.Rules[i].Strategy = x.Strategy
		}
		if x.Rules[i].HoldoutPercent < 0 {
			x.Rules[i].HoldoutPercent = x.HoldoutPercent
		}
	}
}

// keys of the section.
func (x *Egress) keys(pools *[]pool) []key {
	return append(x.Service.keys(), []key{
		oneOf("mode", &x.Mode, string(Off), string(Observe), string(On)),
		number("as", &x.AS, 1<<32-1),
		address("router_id", &x.RouterID, "an IPv4 address, not 0.0.0.0", isRouterID),
		address("address", &x.Address, "an IPv6 address of this host", isUnicast6),
		text("interface", &x.Interface, wrongInterface),
		mappings("reflectors", x.reflector),
		mappings("exits", func(r *reader, n *yaml.Node) { x.exit(r, n, pools) }),
		prefixes("announce", &x.Announce),
		prefixes("servers", &x.Servers),
		mappings("border_routers", x.borderRouter),
		quantity("moved_percent", 100, "percent of what this host sends", func(v float64) { x.MovedPercent = v }),
		{"rules", func(r *reader, n *yaml.Node) { r.rules(n, func(e *yaml.Node) { x.rule(r, e) }) }},
	}...)
}

// leave leaves another host its address: on this one, nothing would reach that host.
func (x *Egress) leave(r *reader, n *yaml.Node, a netip.Addr, whose string) {
	for _, e := range x.Exits {
		if slices.Contains(e.Addresses, a) {
			r.problem(n, "egress: exits: address %v of exit %s is %s's: expected one that no other host has", a, e.Name, whose)
		}
	}
}

// read reads the section. What has no default must be there.
func (x *Egress) read(r *reader, n *yaml.Node) {
	x.Mode, x.Strategy, x.HoldoutPercent, x.MovedPercent = Observe, egress.Throughput, 5, 100
	before := len(r.problems)
	var pools []pool
	r.mapping(n, "egress", x.keys(&pools))
	x.complete()
	if len(r.problems) > before {
		return
	}
	for _, missing := range []struct {
		name string
		is   bool
	}{{"as", x.AS == 0}, {"router_id", !x.RouterID.IsValid()}, {"address", !x.Address.IsValid()}, {"interface", x.Interface == ""},
		{"reflectors", len(x.Reflectors) == 0}, {"exits", len(x.Exits) == 0}} {
		if missing.is {
			r.problem(n, "egress: no %s: expected one", missing.name)
		}
	}
	if len(r.problems) == before {
		x.take(r, pools)
	}
	for _, e := range x.Exits {
		if slices.Contains(e.Addresses, x.Address) {
			r.problem(n, "egress: address: %v: expected an address that exit %s has not got: connections begin from it, by any exit", x.Address, e.Name)
		}
	}
	for _, one := range x.Reflectors {
		x.leave(r, n, one.Address, "a reflector")
	}
	if len(r.problems) == before && len(x.BorderRouters) > 0 {
		x.checkNetwork(r, n)
	}
}
