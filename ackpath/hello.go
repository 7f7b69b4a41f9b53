package ackpath

import (
	"encoding/binary"
	"fmt"
)

// Port is the UDP port on which senders hear hellos and copies, unless configured otherwise.
const Port = 27528

// MaxFlows is how many flows a hello lists at most. It is 1232 bytes then, and with its headers the smallest packet every IPv6 link carries.
const MaxFlows = 64

// What hellos and answers begin with. Copies have the same port and another magic (0x7041, bpf/acks.h).
const (
	magic   = 0x7048
	version = 1

	kindHello  = 1
	kindAnswer = 2

	flagFair = 1 << 0

	headerBytes = 16 // magic, version, kind, flags, number of flows, 2 reserved, nonce
	flowBytes   = 19 // token, both ids, state, copies, late, lead
)

// Name is what both ends of a connection call one of its subflows, whatever a NAT on the way makes of its addresses.
type Name struct {
	// Token of the sender's end of the connection (RFC 8684 section 3.2).
	Token uint32
	// ID of the receiver's address that the subflow uses (RFC 8684 section 3.4), SenderID of the sender's: one that announces addresses has several subflows to each of the receiver's.
	ID, SenderID uint8
}

// Hello asks a sender about flows; without flows it measures the round trip.
type Hello struct {
	// Nonce is random, so that nobody can answer who has not heard the hello.
	Nonce uint64
	Flows []Name // at most MaxFlows
}

// State is what a sender says of a flow.
type State uint8

// The states. Unasked is of a flow no answer has told of yet.
const (
	Unasked   State = iota
	Known           // copies are taken for it
	Unknown         // no connection has this token, or no subflow these ids, or the hello did not come from one of the connection's addresses
	Ambiguous       // several subflows have these ids
	Unmanaged       // its socket does not use the congestion control plait: nothing would keep it fair
	Full            // the sender has as many flows as it takes
	Resting         // copies are taken for it, and its window would gain nothing from them now
)

// takes says whether copies are taken.
func (s State) takes() bool { return s == Known || s == Resting }

func (s State) String() string {
	switch s {
	case Unasked:
		return "the sender was not heard about it yet"
	case Known:
		return "the sender takes copies"
	case Unknown:
		return "the sender knows no such subflow, or the hello reached it from an address that the connection has not got (NAT with several addresses)"
	case Ambiguous:
		return "the sender has several subflows between these two addresses of the connection, and cannot tell whose copies these would be"
	case Unmanaged:
		return "the sender's socket does not use the congestion control plait (held out, chosen by the application, given back, or without anything sent yet): nothing would keep it fair"
	case Full:
		return "the sender has no room for more flows"
	case Resting:
		return "the sender takes copies, and has no use for them now"
	}
	return fmt.Sprintf("the sender says %d, which this version does not know", uint8(s))
}

// Told is what a sender says of a flow. The counters are since it takes copies of it.
type Told struct {
	Name
	State  State
	Copies uint32
	Late   uint32 // copies that came after their twin
	LeadUs uint32 // how much sooner than its twin a copy arrives; 0: not measured lately
}

// Answer is what a sender says to a hello, in as many bytes.
type Answer struct {
	Nonce uint64
	// Fair: its congestion control corrects for copies.
	Fair  bool
	Flows []Told // those of the hello, in its order
}

func appendHeader(b []byte, kind, flags byte, flows int, nonce uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, magic)
	b = append(b, version, kind, flags, byte(flows), 0, 0)
	return binary.BigEndian.AppendUint64(b, nonce)
}

// Append encodes a hello. What the answer will say is room in it: no answer is longer than its question.
func (h Hello) Append(b []byte) []byte {
	b = appendHeader(b, kindHello, 0, len(h.Flows), h.Nonce)
	for _, n := range h.Flows {
		b = binary.BigEndian.AppendUint32(b, n.Token)
		b = append(b, n.ID, n.SenderID)
		b = append(b, make([]byte, flowBytes-6)...)
	}
	return b
}

// Append encodes an answer.
func (a Answer) Append(b []byte) []byte {
	var flags byte
	if a.Fair {
		flags |= flagFair
	}
	b = appendHeader(b, kindAnswer, flags, len(a.Flows), a.Nonce)
	for _, t := range a.Flows {
		b = binary.BigEndian.AppendUint32(b, t.Token)
		b = append(b, t.ID, t.SenderID, byte(t.State))
		b = binary.BigEndian.AppendUint32(b, t.Copies)
		b = binary.BigEndian.AppendUint32(b, t.Late)
		b = binary.BigEndian.AppendUint32(b, t.LeadUs)
	}
	return b
}

// parse checks all but the flows' contents. What is reserved may be anything.
func parse(b []byte, kind byte) (nonce uint64, flags byte, flows [][]byte, err error) {
	if len(b) < headerBytes || binary.BigEndian.Uint16(b) != magic {
		return 0, 0, nil, fmt.Errorf("%d bytes that are no hello of plait's", len(b))
	}
	if b[2] != version {
		return 0, 0, nil, fmt.Errorf("version %d, expected %d: plait is of another version there", b[2], version)
	}
	n := int(b[5])
	if b[3] != kind || n > MaxFlows || len(b) != headerBytes+n*flowBytes {
		return 0, 0, nil, fmt.Errorf("kind %d with %d flows in %d bytes, expected kind %d with at most %d flows", b[3], n, len(b), kind, MaxFlows)
	}
	for i := range n {
		at := headerBytes + i*flowBytes
		flows = append(flows, b[at:at+flowBytes])
	}
	return binary.BigEndian.Uint64(b[8:]), b[4], flows, nil
}

func nameOf(b []byte) Name { return Name{binary.BigEndian.Uint32(b), b[4], b[5]} }

// ParseHello decodes what a receiver sent.
func ParseHello(b []byte) (h Hello, err error) {
	nonce, _, flows, err := parse(b, kindHello)
	if err != nil {
		return h, fmt.Errorf("decode hello: %w", err)
	}
	h.Nonce = nonce
	for _, f := range flows {
		h.Flows = append(h.Flows, nameOf(f))
	}
	return h, nil
}

// ParseAnswer decodes what a sender answered.
func ParseAnswer(b []byte) (a Answer, err error) {
	nonce, flags, flows, err := parse(b, kindAnswer)
	if err != nil {
		return a, fmt.Errorf("decode answer: %w", err)
	}
	a.Nonce, a.Fair = nonce, flags&flagFair != 0
	for _, f := range flows {
		a.Flows = append(a.Flows, Told{nameOf(f), State(f[6]), binary.BigEndian.Uint32(f[7:]), binary.BigEndian.Uint32(f[11:]), binary.BigEndian.Uint32(f[15:])})
	}
	return a, nil
}
