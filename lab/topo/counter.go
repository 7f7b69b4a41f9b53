package topo

import "net/netip"

// Counters returns where the traffic of a direction of a link that the kernel runs is counted: the device, and its
// namespace, that transmits the packets that have passed the link, and the device whose root qdisc is the queue ("" if
// there is none). All are "" for a LAN and for an emulated link.
func (t *Topology) Counters(linkName string, forward bool) (ns, device, queue string) {
	l := t.link(linkName)
	if l == nil {
		return "", "", ""
	}
	i := 1
	if forward {
		i = 0
	}
	switch l.kind {
	case staged:
		s := l.stages()[i]
		return wire, s.far, s.queue
	case direct:
		return l.ends[i].node.name, l.name, ""
	}
	return "", "", ""
}

// Prefix returns the IPv6 prefix meant by a link's name or by a prefix.
func (t *Topology) Prefix(what string) (netip.Prefix, bool) {
	if l := t.link(what); l != nil {
		return l.prefix6, true
	}
	p, err := netip.ParsePrefix(what)
	return p, err == nil
}
