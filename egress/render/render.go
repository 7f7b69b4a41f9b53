// Package render writes the configuration of a network's border routers and route reflectors, so that each of its BGP exits becomes a VRF with a
// SRv6 SID of its own, as the plan of package egress needs it: for FRR 8.4 and newer, and what FRR leaves to the kernel's administrator as a shell script.
// It touches no system. docs/egress/border-routers.md says what each part is for.
package render

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"net/netip"
	"slices"
	"text/template"

	"plait.dev/plait/egress"
)

// Network is what the routers are configured from.
type Network struct {
	// AS is this network's.
	AS uint32
	// Exits of the network; a border router's are named after them.
	Exits []egress.Exit
	// Announce are the prefixes of this network: what peers are told, and never believed about.
	Announce []netip.Prefix
	// Servers are the networks from which content servers come to the reflectors.
	Servers       []netip.Prefix
	Reflectors    []Reflector
	BorderRouters []BorderRouter
}

// Reflector is a BGP route reflector. Without RouterID it is somebody else's to configure, and border routers connect to it all the same.
type Reflector struct {
	Name     string
	RouterID netip.Addr
	Address  netip.Addr
	Password string // of all its sessions (TCP-MD5), servers' and border routers'; empty: none
}

// BorderRouter is an ASBR: the router at which exits leave the network.
type BorderRouter struct {
	Name     string
	RouterID netip.Addr
	// Address is where its sessions with the reflectors come from, and the next hop of its routes.
	Address netip.Addr
	// Locator is the prefix its SIDs are taken from, of 40 to 80 bits.
	Locator netip.Prefix
	// Interface leads into the network. Encapsulated packets come from there, and answers to servers go there.
	Interface string
	// Gateways behind which the announced prefixes are, at most one of each family; without one they are on the interface's own link.
	Gateways []netip.Addr
	Peers    []Peer
}

// Peer is the neighbour behind an exit.
type Peer struct {
	Exit      string // name of one of the exits
	Interface string // that leads to it, and to nobody else
	AS        uint32
	Addresses []netip.Addr // one session with each
	// Announce are prefixes of this network that this peer is told besides the network's, and no other exit's: so that answers to addresses in them come by this exit.
	Announce []netip.Prefix
	// LocalPreference of its routes, 0: FRR's default, 100.
	LocalPreference uint32
	// MaxPrefixes of each family end the session; 0: no limit.
	MaxPrefixes int
	// PasswordFile holds Password (TCP-MD5), and whoever renders reads it; empty: none.
	PasswordFile, Password string
}

// Router is a router to configure.
type Router struct {
	Name string
	// FRR is text for vtysh -f. Secret says that it holds a password.
	FRR    string
	Secret bool
	// Kernel is a shell script for what FRR does not do; empty if there is nothing.
	Kernel string
}

//go:embed border.tmpl reflector.tmpl kernel.tmpl
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.tmpl"))

// family is an address family, as FRR and ip write it.
type family struct {
	Number  int    // 4 or 6
	FRR     string // of address-family
	Match   string // of prefix-list and route-map's match
	Bits    int
	Own     []netip.Prefix // announced by all exits
	AllOwn  []netip.Prefix // announced by any exit
	Routers []netip.Prefix // routers', and what SIDs are in
	Inside  []netip.Prefix // this network's, about which no peer is believed
	// Targets are the route targets of the exits that have it.
	Targets []string
}

// Seq is the number of a prefix list's line i, as FRR would give it: given, loading the same text again changes nothing.
func (f family) Seq(i int) int { return 5 * (i + 1) }

func (f family) has(a netip.Addr) bool { return a.Is4() == (f.Number == 4) }

// of are those of some prefixes that it has.
func (f family) of(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return !f.has(p.Addr()) })
}

// families of a set of peers; IPv6 is always there, because locators are.
func (n Network) families(peers []Peer) []family {
	all := []family{{Number: 6, FRR: "ipv6", Match: "ipv6", Bits: 128}}
	if slices.ContainsFunc(peers, func(p Peer) bool { return slices.ContainsFunc(p.Addresses, netip.Addr.Is4) }) {
		all = append(all, family{Number: 4, FRR: "ipv4", Match: "ip", Bits: 32})
	}
	for i := range all {
		f := &all[i]
		f.Own, f.AllOwn, f.Routers, f.Inside = f.of(n.Announce), f.of(n.own()), f.of(n.routers()), f.of(n.inside())
		for _, p := range peers {
			if slices.ContainsFunc(p.Addresses, f.has) {
				f.Targets = append(f.Targets, n.Exits[n.exit(p.Exit)].RouteTarget)
			}
		}
	}
	return all
}

func hostOnly(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// sids are the prefixes that any exit's SIDs are in.
func (n Network) sids() (all []netip.Prefix) {
	for _, e := range n.Exits {
		all = append(all, e.Locators...)
		for _, s := range e.SIDs {
			all = append(all, hostOnly(s))
		}
	}
	return outermost(all)
}

// own are the prefixes that any exit announces.
func (n Network) own() []netip.Prefix {
	all := slices.Clone(n.Announce)
	for _, p := range n.peers() { // of any router
		all = append(all, p.Announce...)
	}
	return outermost(all)
}

// addresses are those of reflectors and border routers.
func (n Network) addresses() (all []netip.Prefix) {
	for _, r := range n.Reflectors {
		all = append(all, hostOnly(r.Address))
	}
	for _, b := range n.BorderRouters {
		all = append(all, hostOnly(b.Address))
	}
	return all
}

// routers are those that only the network itself may tell a way to: SIDs, and the addresses of reflectors and border routers.
func (n Network) routers() []netip.Prefix { return outermost(slices.Concat(n.sids(), n.addresses())) }

// Guarded are the prefixes to which nothing goes that comes from an exit: those that SIDs are in, but for an exit's locator that holds more than SIDs.
func (n Network) Guarded() (all []netip.Prefix) {
	used := slices.Concat(n.own(), n.Servers, n.addresses())
	for _, b := range n.BorderRouters {
		all = append(all, b.Locator)
	}
	for _, sids := range n.sids() {
		if !slices.ContainsFunc(used, func(p netip.Prefix) bool { return sids.Bits() <= p.Bits() && sids.Contains(p.Addr()) }) {
			all = append(all, sids)
		}
	}
	return outermost(all)
}

// inside are the prefixes of this network: what any exit announces, what SIDs are taken from, where servers are, and the routers' addresses. A peer that is believed about a SID has the packets of
// other exits.
func (n Network) inside() []netip.Prefix {
	return outermost(slices.Concat(n.own(), n.routers(), n.Servers))
}

// outermost are those of some prefixes that are in no other.
func outermost(all []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(all, netip.Prefix.Compare) // what is in another comes behind it
	for _, p := range all {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// exit is the index of an exit by its name; -1: there is none.
func (n Network) exit(name string) int {
	return slices.IndexFunc(n.Exits, func(e egress.Exit) bool { return e.Name == name })
}

func (n Network) peers() []Peer {
	var all []Peer
	for _, b := range n.BorderRouters {
		all = append(all, b.Peers...)
	}
	return all
}

// exit is a peer with what its exit's configuration says.
type exit struct {
	Peer
	Number      int // of the exit, from 1
	Table       uint32
	RouteTarget string
	Families    []exitFamily
	// Priority of the rules that have its table looked up behind the main one.
	Priority int
}

// exitFamily is what the exit is for an address family.
type exitFamily struct {
	family
	Neighbors []netip.Addr
	Gateway   string // what ip route says of it
}

const (
	// guardPriority is that of the first rule before the VRFs' own, 1000.
	guardPriority = 100
	// endPriority is behind them, and before the main table's.
	endPriority = 2000
	// firstPriority is that of the preferred exit's rules: behind the main table's, 32766, and the default one's.
	firstPriority = 32800
	// defaultPreference is FRR's local preference.
	defaultPreference = 100
)

// Before is the priority of rule i of those that are asked before any VRF's table.
func (n Network) Before(i int) int { return guardPriority + i }

// Behind is that of the one that is asked next after it.
func (n Network) Behind() int { return endPriority }

// VRF is the name of the exit's VRF: that of an interface, so at most 15 bytes.
func (x exit) VRF() string { return fmt.Sprint("exit-", x.Number) }

func (n Network) exits(b BorderRouter, families []family) []exit {
	var out []exit
	for _, p := range b.Peers {
		i := n.exit(p.Exit)
		x := exit{Priority: firstPriority, Peer: p, Number: i + 1, Table: n.Exits[i].Table, RouteTarget: n.Exits[i].RouteTarget}
		for _, f := range families {
			f.Own = append(slices.Clone(f.Own), f.of(p.Announce)...)
			one := exitFamily{family: f, Neighbors: slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return !f.has(a) })}
			if g := slices.IndexFunc(b.Gateways, f.has); g >= 0 {
				one.Gateway = " via " + b.Gateways[g].String()
			}
			if len(one.Neighbors) > 0 {
				x.Families = append(x.Families, one)
			}
		}
		for j, o := range b.Peers {
			if prefer, other := cmp.Or(p.LocalPreference, defaultPreference), cmp.Or(o.LocalPreference, defaultPreference); other > prefer || other == prefer && j < len(out) {
				x.Priority++
			}
		}
		out = append(out, x)
	}
	return out
}

func fill(name string, data any) string {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, data); err != nil {
		panic(err) // the templates and their types are ours
	}
	return out.String()
}

func (n Network) border(b BorderRouter) Router {
	families := n.families(b.Peers)
	data := struct {
		Network
		Router   BorderRouter
		Families []family
		IPv4     bool
		Exits    []exit
	}{n, b, families, len(families) > 1, n.exits(b, families)}
	secret := slices.ContainsFunc(n.Reflectors, func(r Reflector) bool { return r.Password != "" }) ||
		slices.ContainsFunc(b.Peers, func(p Peer) bool { return p.Password != "" })
	return Router{Name: b.Name, FRR: fill("border.tmpl", data), Secret: secret, Kernel: fill("kernel.tmpl", data)}
}

func (n Network) reflector(r Reflector) Router {
	families := n.families(n.peers())
	return Router{Name: r.Name, Secret: r.Password != "", FRR: fill("reflector.tmpl", struct {
		Network
		Router   Reflector
		Families []family
		IPv4     bool
	}{n, r, families, len(families) > 1})}
}

// Routers renders all of them: the border routers, then the reflectors that are this network's to configure. The network must have passed Check.
func (n Network) Routers() []Router {
	var all []Router
	for _, b := range n.BorderRouters {
		all = append(all, n.border(b))
	}
	for _, r := range n.Reflectors {
		if r.RouterID.IsValid() {
			all = append(all, n.reflector(r))
		}
	}
	return all
}
