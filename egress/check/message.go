package check

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Lengths of headers, bytes.
const (
	header6     = 40
	header4     = 20
	headerEcho  = 8
	overhead    = 64 // of the encapsulation: an IPv6 header and an SRH with one segment (RFC 8754)
	fullPacket  = 1500
	smallPacket = header6 + headerEcho
)

// Protocol numbers, IANA.
const (
	protocolICMP    = 1
	protocolIPv4    = 4
	protocolIPv6    = 41
	protocolRouting = 43
	protocolICMPv6  = 58
)

// request is an echo request to be told apart from others by its number. size is of the whole packet.
func request(from, to netip.Addr, id, number, size int) ([]byte, error) {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho}
	header := header4
	var pseudo []byte
	if to.Is6() {
		m.Type, header = ipv6.ICMPTypeEchoRequest, header6
		pseudo = icmp.IPv6PseudoHeader(from.AsSlice(), to.AsSlice())
	}
	m.Body = &icmp.Echo{ID: id, Seq: number, Data: make([]byte, max(0, size-header-headerEcho))}
	return m.Marshal(pseudo)
}

// packet6 puts an IPv6 header before a request (RFC 8200 section 3).
func packet6(from, to netip.Addr, hopLimit int, request []byte) []byte {
	b := make([]byte, header6, header6+len(request))
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(request)))
	b[6], b[7] = protocolICMPv6, byte(hopLimit)
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, request...)
}

// kind is what an answer says.
type kind int

const (
	nothing     kind = iota
	expired          // the hop limit, at a router
	unreachable      // a router or the target's host has no way on
	tooBig           // a router's next link is too small
	reply            // the target answered
)

// heard is an ICMP message as far as it is about a packet of ours.
type heard struct {
	kind       kind
	refusal    refusal    // of unreachable
	mtu        int        // of tooBig
	about      netip.Addr // destination of the packet that an error quotes
	id, number int        // of the echo request; 0 if it quotes an encapsulated packet, and too little of it
	outer      bool       // it quotes an encapsulated packet, so it is from a router before the SID
}

// read reads an ICMP message, without IP header. What is of no interest has kind nothing.
func read(b []byte, is4 bool) heard {
	protocol := protocolICMPv6
	if is4 {
		protocol = protocolICMP
	}
	m, err := icmp.ParseMessage(protocol, b)
	if err != nil {
		return heard{}
	}
	h := heard{}
	var quote []byte
	switch body := m.Body.(type) {
	case *icmp.Echo:
		if m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply {
			return heard{kind: reply, id: body.ID, number: body.Seq}
		}
	case *icmp.TimeExceeded:
		h.kind, quote = expired, body.Data
	case *icmp.PacketTooBig:
		h.kind, h.mtu, quote = tooBig, body.MTU, body.Data
	case *icmp.ParamProb: // a host has the SID for an address of its own, and knows no header like that
		h.kind, h.refusal, quote = unreachable, rejected, body.Data
	case *icmp.DstUnreach:
		h.kind, h.refusal, quote = unreachable, refusalOf(m.Code, is4), body.Data
		if is4 && m.Code == 4 { // fragmentation needed: RFC 1191 section 4
			h.kind, h.refusal, h.mtu = tooBig, noRoute, int(binary.BigEndian.Uint16(b[6:]))
		}
	}
	if h.kind == nothing || !h.quote(quote) {
		return heard{}
	}
	return h
}

// quote reads the packet that an error quotes.
func (h *heard) quote(b []byte) bool {
	if len(b) < header4 {
		return false
	}
	var next byte
	switch b[0] >> 4 {
	case 4:
		next, h.about = b[9], netip.AddrFrom4([4]byte(b[16:20]))
		b = b[min(len(b), int(b[0]&15)*4):]
	case 6:
		if len(b) < header6 {
			return false
		}
		next, h.about = b[6], netip.AddrFrom16([16]byte(b[24:40]))
		b = b[header6:]
	default:
		return false
	}
	if next == protocolRouting && len(b) >= 2 { // RFC 8754 section 2
		next, b = b[0], b[min(len(b), 8*(int(b[1])+1)):]
	}
	switch next {
	case protocolRouting, protocolIPv6, protocolIPv4:
		inner := heard{}
		if inner.quote(b) {
			h.id, h.number = inner.id, inner.number
		}
		h.outer = true
		return true
	case protocolICMP, protocolICMPv6:
		if len(b) < headerEcho || b[0] != byte(ipv4.ICMPTypeEcho) && b[0] != byte(ipv6.ICMPTypeEchoRequest) {
			return false
		}
		h.id, h.number = int(binary.BigEndian.Uint16(b[4:])), int(binary.BigEndian.Uint16(b[6:]))
		return true
	}
	return false
}
