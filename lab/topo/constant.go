package topo

import (
	"fmt"
	"slices"

	"plait.dev/plait/lab/experiment"
)

// constant says which directions of a link one netem can do: they have a rate, their parameters never change, and they lose nothing at
// random. A loss must not be before the transmission, where netem has it, for what is lost has used capacity. After another delay, or
// without what a lost carrier took out of netem, its idea of when the packets before have been transmitted would not be the queue's.
func (t *Topology) constant(l *link) (is [2]bool) {
	changes := func(ev experiment.Event) bool {
		return ev.Link == l.name && (ev.Set != nil || ev.Forward != nil || ev.Backward != nil || ev.Carrier != "")
	}
	if slices.ContainsFunc(t.spec.Timeline, changes) {
		return is
	}
	for i, d := range []*experiment.Direction{l.spec.Forward, l.spec.Backward} {
		is[i] = d != nil && hasQueue(d) && (d.LossPercent == nil || *d.LossPercent == 0)
	}
	return is
}

// Queue is the drop-tail queue of a constant direction.
type Queue struct {
	// NS is the namespace of its devices.
	NS string
	// Near is where packets come in, Far what transmits them.
	Near, Far string
	// Priority of the filter at Near's ingress.
	Priority uint16
	// Packets it holds, the one in transmission included.
	Packets int
	// BytesPerS is the rate; 0 is unlimited.
	BytesPerS uint64
}

// Queues returns the queues of the constant directions of a link, to be made before LinkSteps.
func (t *Topology) Queues(name string, l *experiment.Link) []Queue {
	own := t.link(name)
	if own == nil || own.kind != staged {
		return nil
	}
	var queues []Queue
	for i, d := range []*experiment.Direction{l.Forward, l.Backward} {
		if s := own.stages()[i]; s.constant {
			packets, rateBps := queueOf(d)
			// tc, too, rounds down to whole bytes a second.
			queues = append(queues, Queue{NS: wire, Near: s.near, Far: s.far, Priority: queuePriority, Packets: packets, BytesPerS: uint64(rateBps / 8)})
		}
	}
	return queues
}

// constantOptions: netem begins to transmit a packet when the one before has been, or its delay after it came in if that is later.
// So it comes out when it would if it were first transmitted and then delayed, as long as the delay is the same for all. The limit
// leaves room for the queue and for what is under way.
func constantOptions(d *experiment.Direction) string {
	packets, rateBps := queueOf(d)
	return fmt.Sprintf("limit %d delay %dns rate %dbit", packets+delayLimitPackets, delayNS(d), rateBps)
}
