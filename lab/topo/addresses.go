package topo

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"plait.dev/plait/lab/experiment"
)

// wire is the namespace with the inner parts of the links.
const wire = "wire"

// node is a host: a network namespace.
type node struct {
	name   string
	number int // from 1, in the order of nodes
	spec   experiment.Node
	router *experiment.Router // nil if it runs no BGP
	ends   []*end             // by link index
	exits  []*exit            // that this content server uses, by name
	peers  []*peer            // of the router, by name
}

// forwards reports whether the kernel routes packets between the node's links. A content server speaks BGP but does not.
func (n *node) forwards() bool {
	return n.spec.Forward || n.runsFRR() && len(n.spec.Exits) == 0
}

// link joins two ends or more.
type link struct {
	name             string
	index            int // from 1, in file order
	spec             *experiment.Link
	kind             kind
	queue            [2]bool // which directions have a queue: forward, backward (kind staged)
	joint            [2]bool // which of these have one netem for rate and delay
	ends             []*end
	prefix6, prefix4 netip.Prefix
}

// end is the interface of a node on a link.
type end struct {
	node         *node
	link         *link
	number       int // from 1, in the order of the link's ends
	addr6, addr4 netip.Addr
}

func (e *end) addr(family int) netip.Addr {
	if family == 4 {
		return e.addr4
	}
	return e.addr6
}

// linkLocal is fe80:: and the end's number, so that routes via link-local next hops can be read.
func (e *end) linkLocal() netip.Addr {
	return hostAddress(netip.MustParsePrefix("fe80::/64"), e.number)
}

// mac is locally administered: 02:00, the link's index, the end's number.
func (e *end) mac() net.HardwareAddr {
	return net.HardwareAddr{2, 0, byte(e.link.index >> 8), byte(e.link.index), byte(e.number >> 8), byte(e.number)}
}

// end returns the interface of a node on the link, nil if it has none.
func (l *link) end(n *node) *end {
	for _, e := range l.ends {
		if e.node == n {
			return e
		}
	}
	return nil
}

// sharedEnds returns the interfaces of two nodes on the first link they share.
func sharedEnds(a, b *node) (ofA, ofB *end, ok bool) {
	for _, e := range a.ends {
		if o := e.link.end(b); o != nil && a != b {
			return e, o, true
		}
	}
	return nil, nil, false
}

// MAC returns the Ethernet address of a node's interface on a link, nil if it has none.
func (t *Topology) MAC(nodeName, linkName string) net.HardwareAddr {
	if l, n := t.link(linkName), t.node(nodeName); l != nil && n != nil {
		if e := l.end(n); e != nil {
			return e.mac()
		}
	}
	return nil
}

func (t *Topology) buildLinks() error {
	byIndex := func(a, b string) int { return t.spec.Links[a].Index - t.spec.Links[b].Index }
	for _, name := range slices.SortedFunc(maps.Keys(t.spec.Links), byIndex) {
		l, err := t.buildLink(name)
		if err != nil {
			return fmt.Errorf("links.%s%w", name, err)
		}
		t.links = append(t.links, l)
	}
	return nil
}

func (t *Topology) buildLink(name string) (*link, error) {
	s := t.spec.Links[name]
	l := &link{name: name, index: s.Index, spec: s}
	var err error
	if l.prefix6, err = netip.ParsePrefix(cmp.Or(s.Prefix6, fmt.Sprintf("2001:db8:%d::/64", s.Index))); err != nil {
		return nil, fmt.Errorf(".prefix6: %w", err)
	}
	if l.prefix4, err = netip.ParsePrefix(cmp.Or(s.Prefix4, fmt.Sprintf("10.%d.0.0/24", s.Index))); err != nil {
		return nil, fmt.Errorf(".prefix4: %w", err)
	}
	return l, t.chooseKind(l)
}

// hostAddress is the address number i of a prefix; none if it would be beyond the last one there is.
func hostAddress(p netip.Prefix, i int) netip.Addr {
	sum := new(big.Int).SetBytes(p.Addr().AsSlice())
	sum.Add(sum, big.NewInt(int64(i)))
	if sum.BitLen() > p.Addr().BitLen() {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, len(p.Addr().AsSlice()))))
	return a
}

func (t *Topology) buildNodes() error {
	for _, l := range t.links {
		last := len(l.spec.Ends)
		if !l.prefix6.Contains(hostAddress(l.prefix6, last)) {
			return fmt.Errorf("links.%s.prefix6: %s has no room for %d ends", l.name, l.prefix6, last)
		}
		if !l.prefix4.Contains(hostAddress(l.prefix4, last+1)) { // the last address is for broadcasts
			return fmt.Errorf("links.%s.prefix4: %s has no room for %d ends", l.name, l.prefix4, last)
		}
		for i, name := range l.spec.Ends {
			n := t.ensureNode(name)
			e := &end{node: n, link: l, number: i + 1, addr6: hostAddress(l.prefix6, i+1), addr4: hostAddress(l.prefix4, i+1)}
			l.ends = append(l.ends, e)
			n.ends = append(n.ends, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.spec.Nodes)) {
		t.ensureNode(name)
	}
	return nil
}

func (t *Topology) ensureNode(name string) *node {
	if n := t.node(name); n != nil {
		return n
	}
	n := &node{name: name, number: len(t.nodes) + 1}
	if s := t.spec.Nodes[name]; s != nil {
		n.spec = *s
	}
	t.nodes = append(t.nodes, n)
	return n
}

// sysctlLines writes settings as key=value, sorted by key.
func sysctlLines(settings map[string]any) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if settings[key] != nil { // an empty value takes back what the topology file says
			lines = append(lines, key+"="+sysctlValue(settings[key]))
		}
	}
	return lines
}

// sysctlValue writes a number that came through JSON without an exponent, and a truth value as the kernel wants it.
func sysctlValue(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		if v {
			return "1"
		}
		return "0"
	}
	return fmt.Sprint(v)
}
