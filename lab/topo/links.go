package topo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"plait.dev/plait/lab/experiment"
)

// kind is how a link is realised.
type kind int

const (
	// direct: a veth pair from node to node; nothing ever happens to its packets.
	direct kind = iota
	// staged: two veth pairs into wire, and between them for each direction
	//
	//	node -> near end -> [queue pair: netem rate, limit] -> far end [netem delay, loss] -> node
	//
	// joined by redirects at ingress; or, where neither a parameter nor the carrier changes and no packet is lost at random,
	//
	//	node -> near end [limit, by package queue] -> far end [netem rate, delay] -> node
	//
	// which is the same with one timer for a packet instead of two. Nothing is dropped or queued where the sender's stack sees it: a local netem drop
	// would reach TCP as congestion in the host (NET_XMIT_DROP, answered with CWR), and a local queue would hold the
	// sender by TCP small queues.
	staged
	// bridged: a LAN; a bridge in wire.
	bridged
	// emulated: TAP devices run by package emu.
	emulated
)

// delayLimitPackets is netem's limit where it only delays: more than any rate up to 1 Gbit/s and delay up to 10 s puts there.
const delayLimitPackets = 1000000

// wireEnd is the interface in wire that leads to an end.
func (e *end) wireEnd() string { return fmt.Sprintf("l%de%d", e.link.index, e.number) }

// stage is one direction of a staged link: devices in wire.
type stage struct {
	near  string // where packets come in
	queue string // whose root qdisc is the queue and the rate; "" if the direction has no queue stage
	inner string // the other side of queue
	far   string // whose root qdisc is delay and loss
}

func (l *link) stages() [2]stage {
	a, b := l.ends[0].wireEnd(), l.ends[1].wireEnd()
	s := [2]stage{{near: a, far: b}, {near: b, far: a}}
	for i, direction := range []string{"f", "b"} {
		if l.queue[i] && !l.joint[i] {
			s[i].queue, s[i].inner = fmt.Sprintf("l%d%sq", l.index, direction), fmt.Sprintf("l%d%sd", l.index, direction)
		}
	}
	return s
}

// chooseKind decides from what the link has at the start and from what the timeline does to it.
func (t *Topology) chooseKind(l *link) error {
	forward, backward, touched, changed := []*experiment.Direction{l.spec.Forward}, []*experiment.Direction{l.spec.Backward}, false, false
	for _, ev := range t.spec.Timeline {
		if ev.Link == l.name {
			touched, changed = true, changed || ev.Set != nil || ev.Forward != nil || ev.Backward != nil || ev.Carrier != ""
			forward = append(forward, ev.Set, ev.Forward)
			backward = append(backward, ev.Set, ev.Backward)
		}
	}
	l.queue = [2]bool{anyDirection(forward, hasQueue), anyDirection(backward, hasQueue)}
	both := append(forward, backward...)
	needsEmulator := func(d *experiment.Direction) bool { return needsEmulator(d, t.spec.Kernel) }
	// One netem loses packets before they have taken their time, and all that wait when the carrier goes, of which package queue does not know.
	for i, d := range []*experiment.Direction{l.spec.Forward, l.spec.Backward} {
		l.joint[i] = l.queue[i] && !changed && d.LossPercent == nil
	}
	plain := !anyDirection(both, hasQueue) && !anyDirection(both, hasDelay) && !anyDirection(both, needsEmulator)
	switch {
	case len(l.spec.Ends) > 2 && !plain:
		return fmt.Errorf(": a LAN (more than two ends) only has mtu")
	case len(l.spec.Ends) > 2:
		l.kind = bridged
	case anyDirection(both, needsEmulator):
		l.kind = emulated
	case !plain || touched:
		l.kind = staged
	}
	return nil
}

func anyDirection(ds []*experiment.Direction, has func(*experiment.Direction) bool) bool {
	for _, d := range ds {
		if d != nil && has(d) {
			return true
		}
	}
	return false
}

// hasQueue: without a rate a queue is never used.
func hasQueue(d *experiment.Direction) bool { return d.RateMbps != nil }
func hasDelay(d *experiment.Direction) bool { return d.DelayMs != nil || d.LossPercent != nil }

// needsEmulator reports whether netem cannot do it exactly. Before Linux 6.6 its losses cannot be seeded.
func needsEmulator(d *experiment.Direction, kernel string) bool {
	return d.QueueBytes != nil || d.GilbertElliott != nil || d.Jitter != nil || d.Reorder != nil || d.Trace != nil ||
		d.Cellular != nil || d.WiMAX != nil || d.Then != nil || d.LossPercent != nil && kernel == "6.1"
}

// linkCreation makes the interfaces of all links but the emulated ones.
func (t *Topology) linkCreation() []Step {
	var create, up, redirect []string
	for _, l := range t.links {
		switch l.kind {
		case direct:
			create = append(create, fmt.Sprintf("link add %s type veth peer %s", l.ends[0].veth(), l.ends[1].veth()))
		case bridged:
			bridge := fmt.Sprintf("l%d", l.index)
			create = append(create, fmt.Sprintf("link add name %s netns %s mtu %d type bridge stp_state 0 mcast_snooping 0", bridge, wire, l.mtu()))
			for _, e := range l.ends {
				create = append(create, e.intoWire())
				up = append(up, fmt.Sprintf("link set dev %s master %s up", e.wireEnd(), bridge))
			}
			up = append(up, "link set dev "+bridge+" up")
		case staged:
			for _, e := range l.ends {
				create = append(create, e.intoWire())
				up = append(up, "link set dev "+e.wireEnd()+" up")
			}
			for _, s := range l.stages() {
				if s.queue != "" {
					create = append(create, fmt.Sprintf("link add name %s netns %s mtu %d type veth peer name %s netns %s mtu %d", s.queue, wire, l.mtu(), s.inner, wire, l.mtu()))
					up = append(up, "link set dev "+s.queue+" up", "link set dev "+s.inner+" up")
				}
				redirect = append(redirect, s.redirects()...)
			}
		}
	}
	steps := step("", "ip", create)
	steps = append(steps, step(wire, "ip", up)...)
	return append(steps, step(wire, "tc", redirect)...)
}

// veth describes the node's side of a pair.
func (e *end) veth() string {
	return fmt.Sprintf("name %s netns %s mtu %d address %s", e.link.name, e.node.name, e.link.mtu(), e.mac())
}

func (e *end) intoWire() string {
	return fmt.Sprintf("link add %s type veth peer name %s netns %s mtu %d", e.veth(), e.wireEnd(), wire, e.link.mtu())
}

func (l *link) mtu() int {
	if l.spec.MTU == 0 {
		return 1500
	}
	return l.spec.MTU
}

// redirects lead packets from the near end through the queue pair, if there is one, to the far end.
func (s stage) redirects() []string {
	hop := func(from, to string) []string {
		return []string{
			"qdisc add dev " + from + " clsact",
			fmt.Sprintf("filter add dev %s ingress protocol all pref 3 matchall action mirred egress redirect dev %s", from, to),
		}
	}
	if s.queue == "" {
		return hop(s.near, s.far)
	}
	return append(hop(s.near, s.queue), hop(s.inner, s.far)...)
}

// offloadSteps makes packets on the links what they would be on a wire: netem's limit and rate must not see super-packets.
// SCTP has a switch of its own.
func (t *Topology) offloadSteps() []Step {
	var steps []Step
	for _, n := range t.nodes {
		if len(n.ends) == 0 {
			continue
		}
		names := make([]string, len(n.ends))
		for i, e := range n.ends {
			names[i] = e.link.name
		}
		line := fmt.Sprintf("for i in %s; do ethtool -K $i tso off gso off gro off tx off rx off sg off tx-sctp-segmentation off || exit; done", strings.Join(names, " "))
		steps = append(steps, Step{NS: n.name, Tool: "sh", Lines: []string{line}})
	}
	return steps
}

// LinkSteps applies the parameters of a link that netem runs: at the start, and again whenever the timeline changes them.
// l holds both directions complete; it must not have a parameter that neither the link nor the timeline has.
// The seed is that of the random losses; every call starts their sequence anew, so each needs another seed.
//
// Packets already in the queue leave at the old rate (sch_netem.c computes the time when a packet comes in).
func (t *Topology) LinkSteps(name string, l *experiment.Link, seed uint64) []Step {
	own := t.link(name)
	if own == nil || own.kind != staged {
		return nil
	}
	var lines []string
	for i, d := range []*experiment.Direction{l.Forward, l.Backward} {
		if d == nil {
			continue
		}
		s := own.stages()[i]
		if s.queue != "" {
			lines = append(lines, "qdisc replace dev "+s.queue+" root netem "+queueOptions(d))
		}
		if own.joint[i] {
			lines = append(lines, "qdisc replace dev "+s.far+" root netem "+jointOptions(d))
		} else if hasDelay(d) {
			random := rand.NewPCG(seed, uint64(own.index)<<1|uint64(i))
			lines = append(lines, "qdisc replace dev "+s.far+" root netem "+delayOptions(d, random.Uint64()))
		}
	}
	return step(wire, "tc", lines)
}

// Queue is the queue of a direction that has one netem for rate and delay: what package queue needs.
type Queue struct {
	NS, Near, Far string
	Packets       int
	RateBps       int64
}

// Queue returns the queue of a direction, with the parameters that l has, if package queue has to make it.
func (t *Topology) Queue(name string, forward bool, l *experiment.Link) (q Queue, ok bool) {
	own, i, d := t.link(name), 0, l.Forward
	if !forward {
		i, d = 1, l.Backward
	}
	if own == nil || !own.joint[i] || own.kind != staged || rateBps(d) == 0 {
		return q, false
	}
	s := own.stages()[i]
	return Queue{NS: wire, Near: s.near, Far: s.far, Packets: queuePackets(d), RateBps: rateBps(d)}, true
}

// queuePackets is the limit of a queue, the packet in transmission included.
func queuePackets(d *experiment.Direction) int {
	if d.QueuePackets == nil {
		return 1000
	}
	return *d.QueuePackets
}

func rateBps(d *experiment.Direction) int64 {
	if d.RateMbps == nil {
		return 0
	}
	return int64(math.Round(*d.RateMbps * 1e6))
}

func delayNS(d *experiment.Direction) int64 {
	if d.DelayMs == nil {
		return 0
	}
	return int64(math.Round(*d.DelayMs * 1e6))
}

// queueOptions: netem counts the packet in transmission in its limit, and 14 bytes of link-layer header in its length.
func queueOptions(d *experiment.Direction) string {
	return fmt.Sprintf("limit %d rate %dbit", queuePackets(d), rateBps(d))
}

func jointOptions(d *experiment.Direction) string {
	return fmt.Sprintf("limit %d delay %dns rate %dbit", delayLimitPackets, delayNS(d), rateBps(d))
}

func delayOptions(d *experiment.Direction, seed uint64) string {
	options := ""
	if d.LossPercent != nil && *d.LossPercent > 0 {
		options = fmt.Sprintf(" loss random %g%% seed %d", *d.LossPercent, seed)
	}
	return fmt.Sprintf("limit %d delay %dns%s", delayLimitPackets, delayNS(d), options)
}
