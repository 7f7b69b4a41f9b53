package cp

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// The two ends speak in messages: kind (1 byte), length of the body (4 bytes, big-endian), body. All bodies are JSON but those of
// msgData, which are the file's bytes.
const (
	msgRequest = 'Q' // near, first: request
	msgEntry   = 'E' // sender: entry, something there is to copy
	msgTotal   = 'T' // sender: total of all entries, when it is known
	msgBegin   = 'B' // sender: begin, a file's data follows
	msgData    = 'D' // sender: bytes of that file
	msgDone    = 'F' // sender: done, the file's end
	msgProblem = 'P' // either: problem, something is not copied, and why
	msgEnd     = 'Z' // sender: that is all
	msgWant    = 'W' // receiver: want, the answer to an entry
	msgKept    = 'K' // receiver: kept, the entry is as it should be
	msgBye     = 'Y' // receiver, last
)

const (
	maxControl = 64 << 10  // of a JSON body; paths have up to 4096 bytes
	dataBytes  = 128 << 10 // of file in a message
	headBytes  = 5         // kind and length
	// readBytes is read ahead: many small messages. The rest of a large one goes where it belongs without another copy.
	readBytes = 16 << 10
)

// request says what the near side wants.
type request struct {
	Send     bool     // the far side is the sender
	Sources  []string // paths at the far side, if it sends
	Names    []string // what each source is called in the destination
	To       string   // destination at the far side, if it receives
	Into     bool     // the destination must be a directory
	Checksum bool
}

// entry is a file, directory or symbolic link below a source.
type entry struct {
	ID     uint64
	Source int    // index of the source
	Path   string // below it, with slashes; empty: the source itself
	Kind   entryKind
	Mode   uint32 // permission bits
	Size   int64  `json:",omitempty"`
	MTime  int64  // nanoseconds since 1970
	Target string `json:",omitempty"` // of a link
}

type entryKind string

const (
	isFile entryKind = "file"
	isDir  entryKind = "dir"
	isLink entryKind = "link"
)

type total struct {
	Files uint64
	Bytes int64
}

// want asks for a file from an offset on. The receiver has what is before it, if that has the sum.
type want struct {
	ID     uint64
	Offset int64  `json:",omitempty"`
	Sum    []byte `json:",omitempty"` // SHA-256 of the bytes before the offset
}

type begin struct {
	ID     uint64
	Offset int64 // 0, or the one wanted
}

// done ends a file: the sum of what was sent of it, or that the sender breaks it off. It has said why.
type done struct {
	Sum    uint32 // CRC-32C (RFC 7143, 13.1)
	Broken bool   `json:",omitempty"`
}

// castagnoli is what CPUs have an instruction for. The sum finds mistakes; TLS keeps others from changing what is sent.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type kept struct {
	ID     uint64
	Before bool // it was there before: nothing was sent
}

type problem struct {
	ID   uint64 `json:",omitempty"` // of the entry this answers, from the receiver
	Path string `json:",omitempty"`
	Why  string `json:",omitempty"` // nothing: the user knows already
	Fine bool   `json:",omitempty"` // it is no failure: sockets are not copied, for example
	Ends bool   `json:",omitempty"` // nothing more can be copied: there is no room, for example
}

// stream reads and writes messages. Writing may be done by several goroutines.
type stream struct {
	r  *bufio.Reader
	mu sync.Mutex
	w  *bufio.Writer
}

func newStream(rw io.ReadWriter) *stream {
	return &stream{r: bufio.NewReaderSize(rw, readBytes), w: bufio.NewWriterSize(rw, dataBytes)}
}

// send writes a message. It may stay in the buffer until flush.
func (s *stream) send(kind byte, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if len(b) > maxControl {
		return fmt.Errorf("message %c has %d bytes, more than %d: a path or link is too long", kind, len(b), maxControl)
	}
	return s.sendBytes(kind, append(make([]byte, headBytes, headBytes+len(b)), b...))
}

// sendBytes writes a message whose body follows headBytes of room. One of dataBytes is not copied to the buffer.
func (s *stream) sendBytes(kind byte, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-headBytes))
	if len(b) > dataBytes {
		if err := s.w.Flush(); err != nil {
			return err
		}
	}
	_, err := s.w.Write(b)
	return err
}

func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Flush()
}

// idle reports whether the next message is not here yet.
func (s *stream) idle() bool { return s.r.Buffered() == 0 }

// next reads a message. The body is valid until the next call; buf holds it and grows as needed.
func (s *stream) next(buf *[]byte) (kind byte, body []byte, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, nil, ended(err)
	}
	kind = head[0]
	n := binary.BigEndian.Uint32(head[1:])
	if limit := uint32(maxControl); n > limit && !(kind == msgData && n <= dataBytes) {
		return 0, nil, fmt.Errorf("message %q has %d bytes, more than allowed", kind, n)
	}
	if cap(*buf) < int(n) {
		*buf = make([]byte, n)
	}
	body = (*buf)[:n]
	if _, err := io.ReadFull(s.r, body); err != nil {
		return 0, nil, ended(err)
	}
	return kind, body, nil
}

// ended makes an end where there should be none an error that says so.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the other end has gone")
	}
	return err
}

// decode reads the body of a message of a kind.
func decode[T any](kind byte, body []byte) (v T, err error) {
	if err = json.Unmarshal(body, &v); err != nil {
		err = fmt.Errorf("message %q: %w", kind, err)
	}
	return v, err
}
