package topo

import "net/netip"

// Counter says where the traffic of one direction of a link is counted.
type Counter struct {
	// NS is the namespace of the devices.
	NS string
	// Device transmits the packets that have passed the link.
	Device string
	// Queue has the drop-tail queue as its root qdisc, Loss the random losses; Entry drops at ingress what a blackhole
	// swallows or package queue. Each is "" if the link has no such stage.
	Queue, Loss, Entry string
}

// Counter returns where a direction of a link that the kernel runs is counted; nothing for a LAN and for an emulated link.
func (t *Topology) Counter(linkName string, forward bool) Counter {
	l := t.link(linkName)
	if l == nil {
		return Counter{}
	}
	i := 1
	if forward {
		i = 0
	}
	switch l.kind {
	case staged:
		s := l.stages()[i]
		return Counter{NS: wire, Device: s.far, Queue: s.queue, Loss: s.far, Entry: s.near}
	case direct:
		return Counter{NS: l.ends[i].node.name, Device: l.name}
	}
	return Counter{}
}

// LANCounter returns where what a LAN brings to one of its ends is counted, by the end's place in the link's ends.
func (t *Topology) LANCounter(linkName string, end int) Counter {
	return Counter{NS: wire, Device: t.link(linkName).ends[end].wireEnd()}
}

// Prefix returns the IPv6 prefix meant by a link's name or by a prefix.
func (t *Topology) Prefix(what string) (netip.Prefix, bool) {
	if l := t.link(what); l != nil {
		return l.prefix6, true
	}
	p, err := netip.ParsePrefix(what)
	return p, err == nil
}
