// Package egress decides by which BGP exit the packets of a content server leave its network. It computes: what the reflectors
// say comes in, what the kernel's tables should hold comes out. Its parts that act are egress/bgp, egress/route and egress/mptcp.
//
// An exit is a BGP neighbour of the network, behind one of its border routers (ASBR). The border router gives each a SRv6 SID
// (End.DT6, End.DT4 or End.DT46, RFC 8986) that decapsulates a packet and forwards it to this neighbour, and announces what the
// neighbour announces as VPN routes with that SID (RFC 9252). Source: Multipath Transport SRv6-EPE Suite (2024), chapters 3 and 4.
package egress

import (
	"fmt"
	"net/netip"
)

// Exit is one way out, as it is configured.
type Exit struct {
	Name string
	// RouteTarget marks the VPN routes of this exit, as in 65000:11 (RFC 4360).
	RouteTarget string
	// Locators are the prefixes its SIDs must be in. A route with another SID is refused: it could lead packets anywhere.
	Locators []netip.Prefix
	// SIDs mark the VPN routes of an exit that has neither route target nor locators, as where one route target stands for all exits of a border router.
	SIDs []netip.Addr
	// Addresses of this host whose packets leave by this exit or not at all (EPE addresses), at most one of each family.
	Addresses []netip.Addr
	// Table is the number of the kernel's routing table for it.
	Table uint32
	// Cost of what it carries, compared with that of other exits, in any unit.
	Cost int
	// CapMbps is how much of this host's traffic it is to carry; 0: no limit.
	CapMbps float64
}

// KnownBy says in words what marks the exit's routes.
func (e *Exit) KnownBy() string {
	if e.RouteTarget != "" {
		return "route target " + e.RouteTarget + " and a SID in its locators"
	}
	return fmt.Sprintf("one of its SIDs %v", e.SIDs)
}

// Key tells apart the routes of which a reflector has told: the one that comes later under the same key replaces.
type Key struct {
	Reflector     netip.Addr
	Distinguisher string // of a VPN route (RD, RFC 4364), as in 65000:11; 0.65000:11 is of type 2, with the same AS in 4 bytes; empty: a route of the default table
	PathID        uint32 // ADD-PATH (RFC 7911); 0 without
	Prefix        netip.Prefix
}

// Route is one way to a destination, as a reflector tells it. Routes of the default table have neither SID nor route targets.
type Route struct {
	SID          netip.Addr // complete: what was transposed into the label is back (RFC 9252 section 4)
	RouteTargets []string
	NextHop      netip.Addr
	LocalPref    uint32 // 100 if there was none
	ASPath       []uint32
	Origin       uint8 // 0 IGP, 1 EGP, 2 incomplete
	MED          uint32
	RouterID     netip.Addr // of the router it comes from: ORIGINATOR_ID (RFC 4456), else the reflector's
}

// Update is a route announced, or withdrawn if Route is nil.
type Update struct {
	Key
	Route *Route
}

// Entry is a route the kernel should have.
type Entry struct {
	// Table of an exit; 0 is the main table.
	Table  uint32
	Prefix netip.Prefix
	// SID the packet is encapsulated to; if there is none, it goes to NextHop as it is.
	SID     netip.Addr
	NextHop netip.Addr
	// Standby entries stand behind another for the same prefix in the main table, so that a withdrawal leaves no hole.
	Standby bool
}

// Change is a step from what the kernel has to what it should have: New replaces Old; either may be nil.
type Change struct {
	Old, New *Entry
}
