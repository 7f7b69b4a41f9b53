package stripe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// What goes over a path, inside its encryption, is frames: type (1 byte), length of the body (2 bytes, big-endian), body.
// A frame of an unknown type is skipped, so that later versions may add some.
const (
	frameHello   = 1 // dialer, first: what joins which session (hello, JSON)
	frameWelcome = 2 // listener, first: the path is taken (welcome, JSON)
	frameData    = 3 // number of the chunk (8 bytes), payload; no payload: the end of the stream
	frameAck     = 4 // chunks that came over this path, next chunk missing in the session, limit, which came after that one (8 bytes each)
	framePing    = 5 // a number, to be sent back at once (8 bytes)
	framePong    = 6
	frameLinks   = 7  // listener: its addresses, as they are now ([]Peer, JSON)
	frameGone    = 8  // id of a path that works no longer (4 bytes)
	frameClose   = 9  // the session ends; why, in words, or nothing if all is well
	frameMove    = 10 // dialer, last: the path ends with its link, and not the session
)

const (
	headerBytes = 3
	dataHeader  = headerBytes + 8
	// maxFrame is the plaintext of one TLS record (RFC 8446, 5.1): a full chunk is one record, decrypted and handed on at once.
	maxFrame = 16384
	// maxPayload is what a full chunk carries.
	maxPayload = maxFrame - dataHeader
	maxBody    = maxFrame - headerBytes
)

// version of the protocol. A listener refuses another one.
const version = 4

// hello is what a dialer says first on a path.
type hello struct {
	Version  int
	Session  []byte // 16 random bytes
	Create   bool   // the session may be new; false after the first path: then it must exist
	Path     uint32 // the dialer's number of the path, from 1, each used once
	Replaces uint32 // the path this one takes the place of; 0: none
	Policy   Policy // of the dialer's link
	Link     string // its name
	To       string // the listener's link, as the dialer knows it
}

// welcome is what a listener answers. A dialer may know the link by another name only, a host's or that of a NAT.
type welcome struct {
	Link   string // the listener's link the path has come to
	Policy Policy // of that link
}

func appendFrame(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind, byte(len(body)>>8), byte(len(body)))
	return append(b, body...)
}

// putDataHeader makes a frame of data that has dataHeader bytes of room in front.
func putDataHeader(frame []byte, number uint64) {
	frame[0] = frameData
	binary.BigEndian.PutUint16(frame[1:], uint16(len(frame)-headerBytes))
	binary.BigEndian.PutUint64(frame[headerBytes:], number)
}

func appendNumbers(b []byte, kind byte, numbers ...uint64) []byte {
	b = append(b, kind, 0, byte(8*len(numbers)))
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// appendJSON panics only for a value that is no JSON, or too long: both are mistakes of this package.
func appendJSON(b []byte, kind byte, v any) []byte {
	body, err := json.Marshal(v)
	if err != nil || len(body) > maxBody {
		panic(fmt.Sprintf("stripe: frame %d: %d bytes, %v", kind, len(body), err))
	}
	return appendFrame(b, kind, body)
}

// readNumbers takes apart the body of a frame that is n numbers.
func readNumbers(kind byte, body []byte, n int) ([4]uint64, error) {
	var out [4]uint64
	if len(body) != 8*n {
		return out, fmt.Errorf("frame %d has a body of %d bytes, not %d", kind, len(body), 8*n)
	}
	for i := range n {
		out[i] = binary.BigEndian.Uint64(body[8*i:])
		if out[i] > math.MaxInt64 {
			return out, fmt.Errorf("frame %d has the number %d, above all limits", kind, out[i])
		}
	}
	return out, nil
}

// frame is one, taken apart.
type frame struct {
	kind   byte
	number uint64 // of the chunk, if it is data
	body   []byte // for data, the payload
}

// readFrame reads a frame; the body goes to buf, which has room for maxFrame bytes.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var head [dataHeader]byte
	if _, err := io.ReadFull(r, head[:headerBytes]); err != nil {
		return frame{}, err
	}
	f := frame{kind: head[0]}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > maxBody {
		return f, fmt.Errorf("frame %d has a body of %d bytes, more than %d", f.kind, n, maxBody)
	}
	if f.kind == frameData {
		if n < 8 {
			return f, fmt.Errorf("frame %d has a body of %d bytes, less than a number's", f.kind, n)
		}
		if _, err := io.ReadFull(r, head[headerBytes:]); err != nil {
			return f, cut(err)
		}
		f.number = binary.BigEndian.Uint64(head[headerBytes:])
		n -= 8
	}
	f.body = buf[:n]
	_, err := io.ReadFull(r, f.body)
	return f, cut(err)
}

// cut is what an end in the middle of a frame is.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
