// Package mptcp gives the MPTCP connections of a content server a subflow through each BGP exit that reaches their client.
//
// A connection starts on the server's default address. The package then announces one address per exit (EPE address, [egress.Exit])
// to the client with ADD_ADDR (RFC 8684 section 3.4.1), and the client opens a subflow to each. It is a path manager in user space:
// the kernel says by generic netlink what connections and subflows do, and is told what to announce, close and prefer. Which exits
// reach a client is asked from the egress plan. The [Manager] decides, without a kernel; [Service] connects it to one.
//
//	go test ./egress/mptcp
//	PLAIT_TEST=netns go test ./egress/mptcp
package mptcp

import (
	"errors"
	"net/netip"
	"syscall"
)

// ExitAddress is an address of this host with what a client's connections are to do with it.
type ExitAddress struct {
	// Addr is announced to the client, unless it is the one the connection began on: of that one only Backup and Avoid count.
	Addr netip.Addr
	// Avoid is for the address the connection began on: its subflow is closed if there is another.
	Avoid bool
	// Backup asks both ends to send nothing through it while there is another (MP_PRIO, RFC 8684 section 3.3.8).
	Backup bool
	// Same says that its packets leave by the same exit as those of the address the connection began on. While that one has a subflow this one
	// would only take a second share of the same path: it is not announced, and a backup where the client has joined already.
	Same bool
}

// Peer is what tells connections apart when it is asked which exits they are to use.
type Peer struct {
	// Token is the kernel's name for the connection.
	Token uint32
	// Client it comes from, and Own, the address and port of this host it began on; neither is IPv4-mapped.
	Client netip.Addr
	Own    netip.AddrPort
	// Offered says that addresses were announced to it before.
	Offered bool
	// Earlier says that it is older than the Service: what another process has done with it nobody knows.
	Earlier bool
}

// Subflow is one TCP connection of an MPTCP connection.
type Subflow struct {
	// Local and Remote are as the kernel writes them: of an IPv6 socket that speaks IPv4 they are IPv4-mapped, and only so it finds the
	// subflow again.
	Local, Remote netip.AddrPort
	// LocalID is the id of the local address in ADD_ADDR and RM_ADDR; 0 is the one the connection began on.
	LocalID uint8
	// Backup is what this host asked for, not the peer.
	Backup bool
	// unsure: the kernel may have asked for something else when the client joined.
	unsure bool
}

// Ends tell subflows apart: their addresses and ports, never IPv4-mapped.
type Ends struct{ Local, Remote netip.AddrPort }

// Ends of the subflow.
func (s Subflow) Ends() Ends {
	return Ends{netip.AddrPortFrom(s.Local.Addr().Unmap(), s.Local.Port()), netip.AddrPortFrom(s.Remote.Addr().Unmap(), s.Remote.Port())}
}

// Connection is an MPTCP connection as the kernel shows it on request.
type Connection struct {
	Token  uint32 // the kernel's name for it (RFC 8684 section 3.1), unique in a network namespace
	Server bool   // the peer opened it
	// Local and Remote are the ends of the first subflow, also when it is closed.
	Local, Remote netip.AddrPort
	// Closing: this host's application has closed it. What it had written may still be on the way.
	Closing bool
	// Fallback says that it is TCP by now: no further subflow can come (RFC 8684 section 3.7).
	Fallback bool
	Subflows []Subflow
}

// EventType says what happened; numbers of enum mptcp_event_type in the kernel's mptcp_pm.h. The others are not asked for.
type EventType uint8

// What a Manager acts on.
const (
	Established    EventType = 2  // both ends have seen MPTCP work: subflows can be added; Event.Subflow is the first one
	Closed         EventType = 3  // this host's application closed it; only the token is known
	SubEstablished EventType = 10 //
	SubClosed      EventType = 11 // Event.Err, if an error closed it
)

// Event is one report of the kernel.
type Event struct {
	Type  EventType
	Token uint32
	// Server says that the peer opened the connection; known of Established.
	Server bool
	Subflow
	Err syscall.Errno
}

// Kernel is what a [Manager] can do to connections. Each method has happened when it returns.
type Kernel interface {
	// Announce sends ADD_ADDR; a second time with the same address and id, it is sent again.
	Announce(token uint32, addr netip.Addr, id uint8) error
	// Remove sends RM_ADDR: a peer closes the subflows to the address and opens no more.
	Remove(token uint32, id uint8) error
	// Destroy closes a subflow; what it had not delivered goes over another.
	Destroy(token uint32, s Subflow) error
	// SetBackup sends MP_PRIO.
	SetBackup(token uint32, s Subflow, backup bool) error
}

// What a Kernel's errors can be, as far as it matters to a Manager.
var (
	// ErrGone: there is no such connection or subflow any more, and nothing to do.
	ErrGone = errors.New("the connection or subflow is gone")
	// ErrNotOurs: the connection was opened under the kernel's own path manager and stays so.
	ErrNotOurs = errors.New("the connection is managed by the kernel's path manager")
	// ErrID: the connection knows the address by another id, or the id as another address.
	ErrID = errors.New("the connection has another id for the address")
)
