package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/{sock_diag,inet_diag,mptcp}.h.
const (
	sockDiagByFamily = 20

	diagReqProtocol = 3 // protocols over 255 do not fit the request's byte
	diagInfo        = 2
	diagULPInfo     = 19

	ulpInfoMPTCP = 3

	subflowTokenLocal = 2
	subflowFlags      = 8
	subflowIDLocal    = 10

	subflowFlagOurs      = 1<<1 | 1<<3 // this host asked for MP_CAPABLE or MP_JOIN
	subflowFlagJoin      = 1<<2 | 1<<3
	subflowFlagBackupLoc = 1 << 5

	infoFlags    = 8  // offsets in struct mptcp_info
	infoToken    = 12 //
	infoFallback = 1 << 0

	infoUnacked = 24 // offset in struct tcp_info

	stateEstablished = 1
	stateSynSent     = 2 // of a connection this host begins
	stateCloseWait   = 8
	stateListen      = 10
	statesOfData     = 1<<stateEstablished | 1<<stateCloseWait  // of TCP
	statesOfEnd      = 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<9 | 1<<11 // FIN_WAIT1 and 2, TIME_WAIT, CLOSE, LAST_ACK, CLOSING
	statesOfMPTCP    = 0xfff &^ (1<<stateListen | 1<<stateSynSent | 1)
	diagMessageLen   = 72 // struct inet_diag_msg
)

// diagSocket is one answer of sock_diag.
type diagSocket struct {
	state         uint8
	local, remote netip.AddrPort
	bound         uint32 // to this interface; 0: to none
	attributes    []byte
}

// dump asks for all sockets of a protocol and family in the given states, and hands each to visit.
func dump(conn *netlink.Conn, protocol uint32, family uint8, states uint32, visit func(diagSocket) error) error {
	request := make([]byte, 56, 64) // struct inet_diag_req_v2
	request[0], request[1], request[2] = family, uint8(min(protocol, unix.IPPROTO_RAW)), 1<<(diagInfo-1)|1<<(diagCong-1)
	binary.NativeEndian.PutUint32(request[4:], states)
	if protocol > 255 {
		e := netlink.NewAttributeEncoder()
		e.Uint32(diagReqProtocol, protocol)
		attribute, err := e.Encode()
		if err != nil {
			return err
		}
		request = append(request, attribute...)
	}
	messages, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump}, Data: request,
	})
	if err != nil {
		return fmt.Errorf("list sockets of protocol %d: %w", protocol, err)
	}
	for _, m := range messages {
		s, err := parseDiag(m.Data)
		if err == nil {
			err = visit(s)
		}
		if err != nil {
			return fmt.Errorf("list sockets of protocol %d: %w", protocol, err)
		}
	}
	return nil
}

// Answered says whether everything that a TCP socket, a subflow's for instance, has sent is acknowledged, as the socket itself has it. It takes some 20 us.
func Answered(e Ends) (bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return false, fmt.Errorf("open sock_diag: %w", err)
	}
	defer conn.Close()
	request := make([]byte, 56) // struct inet_diag_req_v2
	request[0], request[1], request[2] = unix.AF_INET6, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	if e.Local.Addr().Is4() {
		request[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0))
	binary.BigEndian.PutUint16(request[8:], e.Local.Port())
	binary.BigEndian.PutUint16(request[10:], e.Remote.Port())
	copy(request[12:], e.Local.Addr().AsSlice())
	copy(request[28:], e.Remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(request[48:], ^uint64(0)) // no cookie
	answers, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request}, Data: request})
	if err != nil {
		return false, fmt.Errorf("ask for socket %v to %v: %w", e.Local, e.Remote, err)
	}
	for _, m := range answers {
		s, err := parseDiag(m.Data)
		if err != nil {
			return false, err
		}
		d, err := netlink.NewAttributeDecoder(s.attributes)
		if err != nil {
			return false, err
		}
		for d.Next() {
			if b := d.Bytes(); d.Type() == diagInfo && len(b) >= infoUnacked+4 {
				return binary.NativeEndian.Uint32(b[infoUnacked:]) == 0, nil
			}
		}
	}
	return false, fmt.Errorf("ask for socket %v to %v: the kernel tells nothing of it", e.Local, e.Remote)
}

func parseDiag(b []byte) (diagSocket, error) {
	if len(b) < diagMessageLen {
		return diagSocket{}, fmt.Errorf("answer of %d bytes, expected %d or more", len(b), diagMessageLen)
	}
	return diagSocket{
		state:      b[1],
		local:      netip.AddrPortFrom(diagAddr(b[0], b[8:24]), binary.BigEndian.Uint16(b[4:])),
		remote:     netip.AddrPortFrom(diagAddr(b[0], b[24:40]), binary.BigEndian.Uint16(b[6:])),
		bound:      binary.NativeEndian.Uint32(b[diagInterface:]),
		attributes: b[diagMessageLen:],
	}, nil
}

// diagAddr keeps IPv4-mapped addresses as they are: [Subflow].
func diagAddr(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.AddrFrom16([16]byte(b))
}

// parseConnection reads what sock_diag says of an MPTCP socket.
func parseConnection(s diagSocket) (Connection, error) {
	c := Connection{Local: s.local, Remote: s.remote, Server: true}
	c.Closing = 1<<s.state&statesOfEnd != 0
	d, err := netlink.NewAttributeDecoder(s.attributes)
	if err != nil {
		return c, err
	}
	for d.Next() {
		if d.Type() == diagInfo {
			b := d.Bytes()
			if len(b) < infoToken+4 {
				return c, fmt.Errorf("mptcp_info of %d bytes", len(b))
			}
			c.Fallback = binary.NativeEndian.Uint32(b[infoFlags:])&infoFallback != 0
			c.Token = binary.NativeEndian.Uint32(b[infoToken:])
		}
	}
	return c, d.Err()
}

// parseSubflow reads what sock_diag says of a TCP socket; the token is 0 if it belongs to no MPTCP connection.
func parseSubflow(s diagSocket) (f Subflow, token, flags uint32, err error) {
	f = Subflow{Local: s.local, Remote: s.remote}
	d, err := netlink.NewAttributeDecoder(s.attributes)
	if err != nil {
		return f, 0, 0, err
	}
	for d.Next() {
		if d.Type() != diagULPInfo {
			continue
		}
		d.Nested(func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				if d.Type() != ulpInfoMPTCP {
					continue
				}
				d.Nested(func(d *netlink.AttributeDecoder) error {
					for d.Next() {
						switch d.Type() {
						case subflowTokenLocal:
							token = d.Uint32()
						case subflowFlags:
							flags = d.Uint32()
						case subflowIDLocal:
							f.LocalID = d.Uint8()
						}
					}
					return nil
				})
			}
			return nil
		})
	}
	f.Backup = flags&subflowFlagBackupLoc != 0
	return f, token, flags, d.Err()
}

// Census is how many connections of servers that listen for MPTCP there are at one moment.
type Census struct {
	MPTCP    int `json:"mptcp"`
	Fallback int `json:"fallback"` // began as MPTCP and are TCP by now, for instance because something on the way changed the data
	Plain    int `json:"plain"`    // TCP from the start: the client, or something on the way, does not speak MPTCP
}

// inventory is all that sock_diag knows of MPTCP in the namespace.
type inventory struct {
	connections []Connection
	census      Census
}

// takeInventory asks for connections first, then for subflows: one that comes between is left out, and its event is still to come. A subflow
// without connection is of one closed meanwhile.
func takeInventory() (*inventory, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: 64 << 10})
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer conn.Close()
	var inv inventory
	index, listening := map[uint32]int{}, map[uint16]bool{}
	connection := func(s diagSocket) error {
		if s.state == stateListen {
			listening[s.local.Port()] = true
			return nil
		}
		c, err := parseConnection(s)
		index[c.Token] = len(inv.connections)
		inv.connections = append(inv.connections, c)
		return err
	}
	subflow := func(s diagSocket) error {
		f, token, flags, err := parseSubflow(s)
		i, known := index[token]
		switch {
		case token != 0 && known:
			inv.connections[i].take(f, flags)
		case token == 0 && listening[s.local.Port()]:
			inv.census.Plain++
		}
		return err
	}
	err = errors.Join(
		dump(conn, unix.IPPROTO_MPTCP, unix.AF_INET, statesOfMPTCP|1<<stateListen, connection),
		dump(conn, unix.IPPROTO_MPTCP, unix.AF_INET6, statesOfMPTCP|1<<stateListen, connection),
		dump(conn, unix.IPPROTO_TCP, unix.AF_INET, statesOfData, subflow),
		dump(conn, unix.IPPROTO_TCP, unix.AF_INET6, statesOfData, subflow),
	)
	for _, c := range inv.connections {
		switch {
		case c.Closing:
		case c.Server && c.Fallback:
			inv.census.Fallback++
		case c.Server:
			inv.census.MPTCP++
		}
	}
	return &inv, err
}

// take adds a subflow, the first one in front.
func (c *Connection) take(f Subflow, flags uint32) {
	if flags&subflowFlagOurs != 0 {
		c.Server = false
	}
	c.Subflows = append(c.Subflows, f)
	if last := len(c.Subflows) - 1; flags&subflowFlagJoin == 0 {
		c.Subflows[0], c.Subflows[last] = c.Subflows[last], c.Subflows[0]
	}
}
