package topo

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/template"

	"plait.dev/plait/lab/experiment"
)

//go:embed frr.tmpl
var frrText string

var frrTemplate = template.Must(template.New("frr").Parse(frrText))

// peer is one side of a BGP session.
type peer struct {
	name        string // of the neighbour
	spec        *experiment.Peer
	number      int // of the neighbour in the router's own list, from 1: the community that withholds a prefix from it
	own, remote *end
	exit        *exit // nil if the session is in the default instance
}

func (p *peer) external() bool { return p.own.node.router.ASN != p.remote.node.router.ASN }

// instance is one BGP instance of a router: the default one, or the VRF of an exit.
type instance struct {
	exit       *exit // nil: default
	peers      []*peer
	importOnly bool // the VRF of a content server
}

func (t *Topology) buildRouters() error {
	for _, name := range slices.Sorted(maps.Keys(t.spec.Routers)) {
		n := t.ensureNode(name)
		n.router = t.spec.Routers[name]
	}
	for _, n := range t.nodes {
		if n.router == nil {
			continue
		}
		for i, name := range slices.Sorted(maps.Keys(n.router.Peers)) {
			p, err := t.buildPeer(n, name)
			if err != nil {
				return fmt.Errorf("routers.%s.peers.%s: %w", n.name, name, err)
			}
			p.number = i + 1
			n.peers = append(n.peers, p)
		}
		for _, what := range n.router.Announce {
			if _, err := t.announced(what); err != nil {
				return fmt.Errorf("routers.%s.announce: %w", n.name, err)
			}
		}
	}
	return nil
}

func (t *Topology) buildPeer(n *node, name string) (*peer, error) {
	o := t.node(name)
	if o == nil || t.spec.Routers[name] == nil {
		return nil, fmt.Errorf("there is no router %s", name)
	}
	if _, ok := t.spec.Routers[name].Peers[n.name]; !ok {
		return nil, fmt.Errorf("router %s does not list %s as its peer", name, n.name)
	}
	own, remote, ok := sharedEnds(n, o)
	if !ok {
		return nil, fmt.Errorf("%s and %s share no link", n.name, name)
	}
	p := &peer{name: name, spec: n.router.Peers[name], own: own, remote: remote}
	if p.spec == nil {
		p.spec = &experiment.Peer{}
	}
	return p, nil
}

// announced is the prefix routers announce for a link name or a prefix. It is IPv6 and has no bits set behind its length.
func (t *Topology) announced(what string) (netip.Prefix, error) {
	if l := t.link(what); l != nil {
		return l.prefix6, nil
	}
	p, err := netip.ParsePrefix(what)
	if err != nil || !p.Addr().Is6() || p != p.Masked() {
		return p, fmt.Errorf("%q is neither a link nor an IPv6 prefix", what)
	}
	return p, nil
}

// origins are the prefixes the routers of an AS announce at any time, in the order of their first mention.
func (t *Topology) origins(asn uint32) []netip.Prefix {
	var prefixes []netip.Prefix
	add := func(what string) {
		if p, err := t.announced(what); err == nil && !slices.Contains(prefixes, p) {
			prefixes = append(prefixes, p)
		}
	}
	for _, n := range t.nodes {
		if n.router == nil || n.router.ASN != asn {
			continue
		}
		for _, what := range n.router.Announce {
			add(what)
		}
		for _, ev := range t.spec.Timeline {
			if ev.Router == n.name {
				add(ev.Announce)
			}
		}
	}
	return prefixes
}

// instances are the BGP instances of a router, the default one first.
func (t *Topology) instances(n *node) []instance {
	all := []instance{{}}
	for _, x := range t.exits {
		if x.peer.own.node == n {
			all = append(all, instance{exit: x, peers: []*peer{x.peer}})
		}
	}
	for _, x := range n.exits {
		all = append(all, instance{exit: x, importOnly: true})
	}
	for _, p := range n.peers {
		if p.exit == nil {
			all[0].peers = append(all[0].peers, p)
		}
	}
	return all
}

// hasExits reports whether any router of the AS has an exit, so that its iBGP sessions carry VPN routes.
func (t *Topology) hasExits(asn uint32) bool {
	return slices.ContainsFunc(t.exits, func(x *exit) bool { return x.peer.own.node.router.ASN == asn })
}

// The types below are what frr.tmpl is filled with.

type frrConfig struct {
	Locator   string
	Origins   []netip.Prefix
	Peers     []frrPeer
	Withholds []frrWithhold
	HasExit   bool
	Instances []frrInstance
}

type frrInstance struct {
	ASN           uint32
	VRF           string
	RouterID      string
	SRv6          bool
	Peers         []frrPeer
	Networks      []string
	VPNPeers      bool
	ImportTargets string
	ExportTarget  string
}

type frrPeer struct {
	Name        string
	Address     netip.Addr
	ASN         uint32
	Number      int
	External    bool
	Withheld    bool // from it, at times
	OwnOnly     bool
	LocalPref   *int // nil leaves it to FRR, which has 100
	NextHopSelf bool
	Client      bool
}

// frrWithhold is the route map that marks a prefix as withheld from some peers.
type frrWithhold struct {
	Name        string
	Communities string
}

func (t *Topology) frrPeer(p *peer) frrPeer {
	n := p.own.node
	edge := slices.ContainsFunc(n.peers, (*peer).external)
	withheld := slices.ContainsFunc(t.withheld(n), func(held []*peer) bool { return slices.Contains(held, p) })
	return frrPeer{
		Name: p.name, Address: p.remote.addr6, ASN: p.remote.node.router.ASN, Number: p.number,
		External: p.external(), Withheld: withheld, OwnOnly: p.external() && !n.router.Transit, LocalPref: p.spec.LocalPref,
		NextHopSelf: !p.external() && edge,
		Client:      !p.external() && n.router.Reflector && !p.remote.node.router.Reflector,
	}
}

func (t *Topology) frrInstance(n *node, in instance) frrInstance {
	f := frrInstance{ASN: n.router.ASN, RouterID: routerID(n)}
	for _, p := range in.peers {
		f.Peers = append(f.Peers, t.frrPeer(p))
	}
	if in.importOnly {
		f.VRF, f.ImportTargets = in.exit.vrf(), in.exit.target()
		return f
	}
	for _, prefix := range t.origins(n.router.ASN) {
		if line, ok := t.announcement(n, in, prefix, -1).network(); ok {
			f.Networks = append(f.Networks, line)
		}
	}
	if in.exit != nil {
		f.VRF, f.ExportTarget = in.exit.vrf(), in.exit.target()
		return f
	}
	f.SRv6 = n.router.Locator != ""
	if f.SRv6 {
		f.Networks = append(f.Networks, n.router.Locator)
	}
	f.VPNPeers = t.hasExits(n.router.ASN)
	var targets []string
	for _, x := range t.exits {
		if x.peer.own.node == n {
			targets = append(targets, x.target())
		}
	}
	f.ImportTargets = strings.Join(targets, " ")
	return f
}

func routerID(n *node) string { return fmt.Sprintf("10.255.%d.%d", n.number>>8, n.number&255) }

// frrConf is the router's configuration.
func (t *Topology) frrConf(n *node) string {
	c := frrConfig{Locator: n.router.Locator, Origins: t.origins(n.router.ASN)}
	for _, held := range t.withheld(n) {
		c.Withholds = append(c.Withholds, withhold(held))
	}
	for _, p := range n.peers {
		c.Peers = append(c.Peers, t.frrPeer(p))
		c.HasExit = c.HasExit || p.exit != nil
	}
	for _, in := range t.instances(n) {
		c.Instances = append(c.Instances, t.frrInstance(n, in))
	}
	var out bytes.Buffer
	if err := frrTemplate.Execute(&out, c); err != nil {
		panic(err) // the template and its types are ours
	}
	return out.String()
}

func (n *node) runsFRR() bool { return n.router != nil && !n.router.OwnSpeaker }

// addRouters adds FRR: its files, its daemons, and what tells that it has converged.
func (t *Topology) addRouters(p *Plan) {
	daemons := []string{"mgmtd", "zebra", "bgpd"}
	if t.spec.Kernel == "6.1" { // the guest with this kernel has Debian 12's FRR 8.4, which has no mgmtd
		daemons = daemons[1:]
	}
	for _, n := range t.nodes {
		if !n.runsFRR() {
			continue
		}
		etc := "/etc/frr/" + n.name
		p.Steps = append(p.Steps, Step{Tool: "sh", Lines: []string{fmt.Sprintf("install -d -o frr -g frr -m 755 %s /run/frr/%s", etc, n.name)}})
		p.Files = append(p.Files,
			File{Path: etc + "/vtysh.conf", Mode: 0o644, Owner: "frr"},
			File{Path: etc + "/frr.conf", Content: t.frrConf(n), Mode: 0o644, Owner: "frr"})
		for _, daemon := range daemons {
			p.Daemons = append(p.Daemons, Daemon{NS: n.name, Argv: []string{"/usr/lib/frr/" + daemon, "-d", "-N", n.name}})
		}
		p.Daemons = append(p.Daemons, Daemon{NS: n.name, Argv: []string{"/usr/bin/vtysh", "-N", n.name, "-f", etc + "/frr.conf"}})
	}
	p.Ready = append(p.Ready, t.sessionChecks()...)
	p.Ready = append(p.Ready, t.routeChecks()...)
}

// OutPolicy reports whether the peer is not told everything.
func (p frrPeer) OutPolicy() bool { return p.Withheld || p.OwnOnly }
