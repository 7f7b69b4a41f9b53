package mptcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The kernel's numbers, include/uapi/linux/mptcp.h and mptcp_pm.h (Linux 6.18).
const (
	familyName = "mptcp_pm"
	eventGroup = "mptcp_pm_events"

	cmdSetFlags       = 7
	cmdAnnounce       = 8
	cmdRemove         = 9
	cmdSubflowDestroy = 11

	attrAddr       = 1
	attrToken      = 4
	attrLocalID    = 5
	attrAddrRemote = 6

	addrFamily = 1
	addrID     = 2
	addrAddr4  = 3
	addrAddr6  = 4
	addrPort   = 5
	addrFlags  = 6

	flagSignal = 1 << 0
	flagBackup = 1 << 2

	evToken      = 1
	evLocalID    = 3
	evSource4    = 5
	evSource6    = 6
	evDest4      = 7
	evDest6      = 8
	evSourcePort = 9
	evDestPort   = 10
	evError      = 12
	evFlags      = 13
	evServerSide = 18

	evFlagServerSide = 1 << 1 // evServerSide says the same, and is deprecated since 6.18
)

// parseEvent reads a message of the event group. Unknown attributes are skipped.
func parseEvent(command uint8, data []byte) (Event, error) {
	e := Event{Type: EventType(command)}
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return Event{}, fmt.Errorf("read event %d of %s: %w", command, familyName, err)
	}
	var source, dest netip.Addr
	var sourcePort, destPort uint16
	for d.Next() {
		switch d.Type() {
		case evToken:
			e.Token = d.Uint32()
		case evLocalID:
			e.LocalID = d.Uint8()
		case evSource4, evSource6:
			source = parseAddr(d)
		case evDest4, evDest6:
			dest = parseAddr(d)
		case evSourcePort:
			sourcePort = parsePort(d)
		case evDestPort:
			destPort = parsePort(d)
		case evError:
			e.Err = syscall.Errno(d.Uint8())
		case evFlags:
			e.Server = e.Server || d.Uint16()&evFlagServerSide != 0
		case evServerSide:
			e.Server = e.Server || d.Uint8() != 0
		}
	}
	if err := d.Err(); err != nil {
		return Event{}, fmt.Errorf("read event %d of %s: %w", command, familyName, err)
	}
	e.Local, e.Remote = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(dest, destPort)
	return e, nil
}

// parseAddr keeps IPv4-mapped addresses as they are: [Subflow].
func parseAddr(d *netlink.AttributeDecoder) (a netip.Addr) {
	d.Do(func(b []byte) error {
		var ok bool
		if a, ok = netip.AddrFromSlice(b); !ok {
			return fmt.Errorf("address of %d bytes", len(b))
		}
		return nil
	})
	return a
}

func parsePort(d *netlink.AttributeDecoder) (port uint16) {
	d.Do(func(b []byte) error {
		if len(b) != 2 {
			return fmt.Errorf("port of %d bytes", len(b))
		}
		port = binary.BigEndian.Uint16(b)
		return nil
	})
	return port
}

// address is one in a command; zero fields are left out.
type address struct {
	addr  netip.Addr
	port  uint16
	id    uint8
	flags uint32
}

func (a address) encode(e *netlink.AttributeEncoder) error {
	if a.addr.Is4() {
		e.Uint16(addrFamily, unix.AF_INET)
		e.Bytes(addrAddr4, a.addr.AsSlice())
	} else {
		e.Uint16(addrFamily, unix.AF_INET6)
		e.Bytes(addrAddr6, a.addr.AsSlice())
	}
	if a.id != 0 {
		e.Uint8(addrID, a.id)
	}
	if a.port != 0 {
		e.Uint16(addrPort, a.port) // in the host's byte order, unlike in events
	}
	if a.flags != 0 {
		e.Uint32(addrFlags, a.flags)
	}
	return nil
}

// encodeCommand writes the attributes of a command: the token, and what of the others is given.
func encodeCommand(token uint32, local, remote *address, id uint8) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	if local != nil {
		e.Nested(attrAddr, local.encode)
	}
	e.Uint32(attrToken, token)
	if id != 0 {
		e.Uint8(attrLocalID, id)
	}
	if remote != nil {
		e.Nested(attrAddrRemote, remote.encode)
	}
	return e.Encode()
}
