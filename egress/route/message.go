package route

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// message is a buffer of netlink messages, one behind the other.
type message struct {
	b     []byte
	start int // of the message begun last
}

// begin starts a message; fixed is the structure behind its header.
func (m *message) begin(kind, flags uint16, seq uint32, fixed ...byte) {
	m.start = len(m.b)
	m.b = native.AppendUint32(m.b, 0) // its length, once it is known
	m.b = native.AppendUint16(m.b, kind)
	m.b = native.AppendUint16(m.b, flags|unix.NLM_F_REQUEST)
	m.b = native.AppendUint32(m.b, seq)
	m.b = native.AppendUint32(m.b, 0)
	m.b = append(m.b, fixed...)
}

// end completes the message begun last.
func (m *message) end() { native.PutUint32(m.b[m.start:], uint32(len(m.b)-m.start)) }

// acknowledge asks for an answer to the message begun last.
func (m *message) acknowledge() {
	native.PutUint16(m.b[m.start+6:], native.Uint16(m.b[m.start+6:])|unix.NLM_F_ACK)
}

func (m *message) attribute(kind uint16, value ...byte) {
	m.b = native.AppendUint16(m.b, uint16(4+len(value)))
	m.b = native.AppendUint16(m.b, kind)
	m.b = append(m.b, value...)
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *message) uint32(kind uint16, value uint32) {
	m.attribute(kind, native.AppendUint32(nil, value)...)
}

func (m *message) address(kind uint16, a netip.Addr) { m.attribute(kind, a.AsSlice()...) }

// attributes calls f for each attribute, without the flags of its kind, and reports whether they fill the bytes.
func attributes(b []byte, f func(kind uint16, value []byte)) bool {
	for len(b) >= 4 {
		length := int(native.Uint16(b))
		if length < 4 || length > len(b) {
			return false
		}
		f(native.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:length])
		b = b[min((length+3)&^3, len(b)):]
	}
	return len(b) == 0
}

// number reads an attribute of 1, 2 or 4 bytes.
func number(value []byte) uint32 {
	switch len(value) {
	case 1:
		return uint32(value[0])
	case 2:
		return uint32(native.Uint16(value))
	case 4:
		return native.Uint32(value)
	}
	return 0
}

// address reads an attribute of 4 or 16 bytes.
func address(value []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(value)
	return a
}

// family of an address, for the kernel.
func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
