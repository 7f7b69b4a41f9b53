package daemon

import (
	"net/netip"
	"time"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

// helloKey is a link with an address of this host on it, wayKey a way from there to a sender.
type (
	helloKey struct {
		source netip.Addr
		link   int
	}
	wayKey struct {
		helloKey
		server netip.Addr
	}
)

// ackWay is a way with what is needed to use it.
type ackWay struct {
	ackpath.Way
	link  ackLink
	lacks string    // why hellos cannot be sent
	used  time.Time // by a connection
}

// ackFlow is a subflow of a connection with more than one link.
type ackFlow struct {
	policies map[wayKey]*ackpath.Flow // by quick way: what ends copies over one says nothing of another
	ends     mptcp.Ends
	name     ackpath.Name
	slow     wayKey
	quick    wayKey // zero: there is none
	began    time.Time
	seen     time.Time
	left     string    // why nothing is decided about it any more; empty: it is not there
	asked    time.Time // about this flow, over the quick way; zero: not yet
	answers  uint64
	told     ackpath.Told
	before   ackpath.Told // copies that arrived, and were late, before the sender counted anew
	sent     uint64       // copies, since it is copied: the kernel counts anew then
	earlier  uint64       // copies before
	copied   *bpf.AckRoute
	since    time.Time // it is copied
	decision ackpath.Decision
}

func (f *ackFlow) isNew(now time.Time) bool { return now.Sub(f.began) < newFor }

// due says whether the sender is to be asked about the flow apart from regular hellos.
func (f *ackFlow) due(now time.Time) bool {
	return f.asked.IsZero() || f.isNew(now) && !f.decision.Copy && now.Sub(f.asked) >= askAgain
}

// over makes this the quick way, or none.
func (f *ackFlow) over(quick wayKey) {
	if quick == f.quick {
		return
	}
	if policy := f.policies[f.quick]; policy != nil {
		policy.Leave()
	}
	f.quick = quick
	f.unask()
}

// unask makes the flow one of which the sender has said nothing yet.
func (f *ackFlow) unask() {
	f.told, f.asked = ackpath.Told{Name: f.name, Copies: f.told.Copies, Late: f.told.Late}, time.Time{}
}
