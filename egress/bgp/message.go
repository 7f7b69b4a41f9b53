package bgp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const (
	// Time for the kernel to take a message of this host, which are all short.
	writeTime = 5 * time.Second
	// A message of up to 65535 bytes must fit, so that batches can end where the reflector stops.
	readBuffer = 128 << 10
)

// protocolError ends a session: the codes of a NOTIFICATION (RFC 4271 section 4.5) this host sends, and why in words.
type protocolError struct {
	code, sub uint8
	data      []byte
	words     string
}

func (e *protocolError) Error() string { return e.words }

// notified ends a session: the reflector has sent a NOTIFICATION.
type notified struct{ code, sub uint8 }

func (e *notified) Error() string {
	words := "the reflector closed the session: " + wire.NewNotificationErrorCode(e.code, e.sub).String()
	switch [2]uint8{e.code, e.sub} {
	case [2]uint8{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_BAD_PEER_AS}:
		words += "; it expects this host in another AS"
	case [2]uint8{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER}:
		words += "; it does not accept this host's router ID: is it used twice?"
	case [2]uint8{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_PEER_DECONFIGURED},
		[2]uint8{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_CONNECTION_REJECTED}:
		words += "; is this host a neighbour in its configuration?"
	}
	return words
}

// errHold ends a session: the reflector has been silent for the hold time.
var errHold = errors.New("nothing was heard from the reflector during the hold time: it or the way to it is down")

// peer is a connection to a reflector.
type peer struct {
	conn    net.Conn
	in      *bufio.Reader
	limit   int // bytes of a message
	body    []byte
	writing sync.Mutex
}

func newPeer(conn net.Conn) *peer {
	return &peer{conn: conn, in: bufio.NewReaderSize(conn, readBuffer), limit: wire.BGP_MAX_MESSAGE_LENGTH}
}

// pending reports whether a whole message is there already, so that read does not wait.
func (p *peer) pending() bool {
	if p.in.Buffered() < wire.BGP_HEADER_LENGTH {
		return false
	}
	header, err := p.in.Peek(wire.BGP_HEADER_LENGTH)
	return err == nil && p.in.Buffered() >= int(binary.BigEndian.Uint16(header[16:]))
}

// read returns the next message as bytes, good until the next read. It waits up to hold for one; 0 is for ever.
func (p *peer) read(hold time.Duration) (kind uint8, body []byte, err error) {
	deadline := time.Time{}
	if hold > 0 {
		deadline = time.Now().Add(hold)
	}
	if err := p.conn.SetReadDeadline(deadline); err != nil {
		return 0, nil, err
	}
	var header [wire.BGP_HEADER_LENGTH]byte
	if _, err := io.ReadFull(p.in, header[:]); err != nil {
		return 0, nil, readError(err)
	}
	var h wire.BGPHeader
	if err := h.DecodeFromBytes(header[:]); err != nil {
		return 0, nil, asProtocolError(err)
	}
	limit := p.limit
	if h.Type == wire.BGP_MSG_OPEN || h.Type == wire.BGP_MSG_KEEPALIVE {
		limit = wire.BGP_MAX_MESSAGE_LENGTH
	}
	if int(h.Len) > limit {
		return 0, nil, &protocolError{wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, header[16:18],
			fmt.Sprintf("the reflector sent a message of %d bytes, %d are allowed", h.Len, limit)}
	}
	p.body = slices.Grow(p.body[:0], int(h.Len))[:int(h.Len)-wire.BGP_HEADER_LENGTH]
	body = p.body
	if _, err := io.ReadFull(p.in, body); err != nil {
		return 0, nil, readError(err)
	}
	return h.Type, body, nil
}

func readError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errHold
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the reflector closed the connection without a reason: it stopped, or it does not know this host as a neighbour")
	}
	return fmt.Errorf("read from the reflector: %w", err)
}

// write sends a message. Besides openMessage's, keepalives, notifications and the end of RIB there are none.
func (p *peer) write(m *wire.BGPMessage) error {
	raw, err := m.Serialize()
	if err != nil {
		return fmt.Errorf("make a BGP message: %w", err)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := p.conn.Write(raw); err != nil {
		return fmt.Errorf("write to the reflector: %w", err)
	}
	return nil
}

// close tells the reflector why, if the reason is this host's, and closes the connection.
func (p *peer) close(why error) {
	if errors.Is(why, errHold) {
		why = &protocolError{code: wire.BGP_ERROR_HOLD_TIMER_EXPIRED}
	}
	if e, ok := errors.AsType[*protocolError](why); ok {
		_ = p.write(wire.NewBGPNotificationMessage(e.code, e.sub, e.data)) // the connection is given up anyway
	}
	_ = p.conn.Close()
}

// parse reads a message's body, and writes to it. err is a protocolError; broken is what is wrong with an UPDATE whose routes
// could be read all the same.
func parse(kind uint8, body []byte, options *wire.MarshallingOption) (m *wire.BGPMessage, broken, err error) {
	if kind == wire.BGP_MSG_UPDATE {
		prepare(body, options)
	}
	header := wire.BGPHeader{Type: kind, Len: uint16(wire.BGP_HEADER_LENGTH + len(body))}
	m, err = wire.ParseBGPBody(&header, body, options)
	if err != nil {
		e, ok := errors.AsType[*wire.MessageError](err)
		if !ok || m == nil || kind != wire.BGP_MSG_UPDATE ||
			e.ErrorHandling != wire.ERROR_HANDLING_TREAT_AS_WITHDRAW && e.ErrorHandling != wire.ERROR_HANDLING_ATTRIBUTE_DISCARD {
			return nil, nil, asProtocolError(err)
		}
		broken = err
	}
	if u, ok := m.Body.(*wire.BGPUpdate); ok {
		// The parser gives up before the routes if the lengths of attributes do not add up: nobody knows which routes those are.
		if u.NLRI == nil {
			return nil, nil, asProtocolError(err)
		}
		if err := unique(u); err != nil {
			return nil, nil, err
		}
	}
	return m, broken, nil
}

// survive turns a panic on a message of the reflector into an error: it costs the session, not the process.
func survive(kind uint8, body []byte, err *error) {
	if p := recover(); p != nil {
		*err = &protocolError{wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, wire.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil,
			fmt.Sprintf("the parser failed on a message of type %d and %d bytes: %v", kind, len(body), p)}
	}
}

// unique keeps the first attribute of each type. Routes told twice or in an attribute of wrong flags, which the parser does not
// read, and a well-known attribute that is not known, end the session (RFC 7606 sections 3 and 5.3, RFC 4271 section 6.3).
func unique(u *wire.BGPUpdate) error {
	fail := func(sub uint8, format string, args ...any) error {
		return &protocolError{wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, sub, nil, fmt.Sprintf("the reflector sent "+format, args...)}
	}
	var seen [256]bool
	kept := u.PathAttributes[:0]
	for _, attr := range u.PathAttributes {
		kind, flags := attr.GetType(), attr.GetFlags()
		_, unknown := attr.(*wire.PathAttributeUnknown)
		routes := kind == wire.BGP_ATTR_TYPE_MP_REACH_NLRI || kind == wire.BGP_ATTR_TYPE_MP_UNREACH_NLRI
		switch {
		case unknown && flags&wire.BGP_ATTR_FLAG_OPTIONAL == 0:
			return fail(wire.BGP_ERROR_SUB_UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE, "the well-known attribute %d, which nobody knows", kind)
		case routes && flags&^wire.BGP_ATTR_FLAG_EXTENDED_LENGTH != wire.BGP_ATTR_FLAG_OPTIONAL:
			return fail(wire.BGP_ERROR_SUB_ATTRIBUTE_FLAGS_ERROR, "routes that cannot be read: attribute %d, which is optional and non-transitive, has the flags %#x", kind, uint8(flags))
		case !seen[kind]:
			seen[kind] = true
			kept = append(kept, attr)
		case routes:
			return fail(wire.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, "an UPDATE that tells its routes twice")
		}
	}
	u.PathAttributes = kept
	return nil
}

func asProtocolError(err error) *protocolError {
	if e, ok := errors.AsType[*wire.MessageError](err); ok && e.TypeCode != 0 {
		return &protocolError{e.TypeCode, e.SubTypeCode, e.Data, "the reflector sent a message that cannot be read: " + e.Message}
	}
	return &protocolError{wire.BGP_ERROR_UPDATE_MESSAGE_ERROR, wire.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil,
		"the reflector sent a message that cannot be read: " + err.Error()}
}
