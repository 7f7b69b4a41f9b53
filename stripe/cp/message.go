package cp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// The two ends speak in messages: kind (1 byte), length of the body (4 bytes, big-endian), body. Bodies are arrays of CBOR (RFC 8949),
// but those of msgData, which are the file's bytes.
const (
	msgRequest = 'Q' // near, first: request
	msgEntry   = 'E' // sender: entry, something there is to copy
	msgTotal   = 'T' // sender: total of all entries, when it is known
	msgBegin   = 'B' // sender: begin, a file's data follows
	msgData    = 'D' // sender: bytes of that file
	msgDone    = 'F' // sender: done, the file's end
	msgProblem = 'P' // either: problem, something is not copied, and why
	msgEnd     = 'Z' // sender: there are no more entries
	msgWant    = 'W' // receiver: want, the answer to an entry
	msgKept    = 'K' // receiver: kept, the entry is as it should be
	msgBye     = 'Y' // receiver, last
)

const (
	maxControl = 64 << 10 // of a body, in which there may be several paths
	maxPath    = 4096     // bytes; Linux has none that is longer
	maxRequest = 16 << 20 // of a request's: Linux lets a command line have 6 MB at most, all of which may be names
	// maxNames is how many elements an array may have: of 6 MB of command line each name takes two bytes and a pointer of eight. It bounds memory, of which a name
	// of no bytes takes 16.
	maxNames  = 1 << 20
	dataBytes = 128 << 10 // of file in a message
	headBytes = 5         // kind and length
	// readBytes is read ahead: many small messages. The rest of a large one goes where it belongs without another copy.
	readBytes = 16 << 10
	// bodyBytes of a file are sent before anything else may be.
	bodyBytes = 1 << 20
)

// request says what the near side wants.
type request struct {
	_        struct{} `cbor:",toarray"`
	Send     bool     // the far side is the sender
	Sources  []string // paths at the far side, if it sends
	Names    []string // what each source is called in the destination
	To       string   // destination at the far side, if it receives
	Into     bool     // the destination must be a directory
	Checksum bool
	Absent   []bool // near receives: nothing is there by the name of a source, so that no file below it need be asked for
}

// entry is a file, directory or symbolic link below a source.
type entry struct {
	_      struct{} `cbor:",toarray"`
	ID     uint64
	Source int    // index of the source
	Path   string // below it, with slashes; empty: the source itself
	Kind   entryKind
	Mode   uint32 // permission bits, and the sticky bit of a directory
	Size   int64
	MTime  moment
	Target string // of a link
	Which  string // of a directory: see which
	Twin   bool   // another in its directory, offered before, has its name but for upper and lower case
}

type entryKind string

const (
	isFile entryKind = "file"
	isDir  entryKind = "dir"
	isLink entryKind = "link"
)

type total struct {
	_     struct{} `cbor:",toarray"`
	Files uint64
	Bytes int64
}

// want asks for a file from an offset on. The receiver has what is before it, if that has the sum.
type want struct {
	_      struct{} `cbor:",toarray"`
	ID     uint64
	Offset int64
	Sum    []byte // SHA-256 of the bytes before the offset
}

type begin struct {
	_      struct{} `cbor:",toarray"`
	ID     uint64
	Offset int64 // 0, or the one wanted
}

// done ends a file: the sum of what was sent of it, or that the sender breaks it off. It has said why.
type done struct {
	_      struct{} `cbor:",toarray"`
	Sum    uint32   // CRC-32C (RFC 7143, 13.1)
	Broken bool
}

// castagnoli is what CPUs have an instruction for. The sum finds mistakes; TLS keeps others from changing what is sent.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type kept struct {
	_      struct{} `cbor:",toarray"`
	ID     uint64
	Before bool // it was there before: nothing was sent
}

type problem struct {
	_    struct{} `cbor:",toarray"`
	ID   uint64   // of the entry this answers, from the receiver
	Path string
	Why  string // nothing: the user knows already
	Fine bool   // it is no failure: sockets are not copied, for example
	Ends bool   // nothing more can be copied: there is no room, for example
}

// stream reads and writes messages. Writing may be done by several goroutines.
type stream struct {
	r       *bufio.Reader
	mu      sync.Mutex
	w       *bufio.Writer
	scratch bytes.Buffer // a message while it is made
	rw      io.ReadWriter
}

// newStream reads first before what comes over rw.
func newStream(rw io.ReadWriter, first []byte) *stream {
	return &stream{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), rw), readBytes), w: bufio.NewWriterSize(rw, dataBytes), rw: rw}
}

var (
	encoding, _ = cbor.EncOptions{}.UserBufferEncMode()
	// names need not be UTF-8
	decoding, _ = cbor.DecOptions{UTF8: cbor.UTF8DecodeInvalid, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden, MaxArrayElements: maxNames}.DecMode()
)

// limit is how many bytes the body of a message may have.
func limit(kind byte) int {
	switch kind {
	case msgRequest:
		return maxRequest
	case msgData:
		return dataBytes
	}
	return maxControl
}

// message makes one in b, in place of what is there.
func message(b *bytes.Buffer, kind byte, body any) error {
	b.Reset()
	b.Write([]byte{kind, 0, 0, 0, 0})
	if err := encoding.MarshalToBuffer(body, b); err != nil {
		return fmt.Errorf("message %c: %w", kind, err)
	}
	n := b.Len() - headBytes
	if n > limit(kind) {
		return fmt.Errorf("message %c has %d bytes, more than %d: a path or link is too long", kind, n, limit(kind))
	}
	binary.BigEndian.PutUint32(b.Bytes()[1:], uint32(n))
	return nil
}

// decode reads the body of a message of a kind.
func decode[T any](kind byte, body []byte) (v T, err error) {
	if err = decoding.Unmarshal(body, &v); err != nil {
		err = fmt.Errorf("%w: message %q is malformed: %w", errBroken, kind, err)
	}
	return v, err
}

// send writes a message. It may stay in the buffer until flush.
func (s *stream) send(kind byte, body any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := message(&s.scratch, kind, body); err != nil {
		return err
	}
	_, err := s.w.Write(s.scratch.Bytes())
	return err
}

// sendData writes messages with n bytes that a file has next. Many go to the connection without another copy.
func (s *stream) sendData(b *body, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.n = n
	if n >= dataBytes {
		if err := s.w.Flush(); err != nil {
			return err
		}
	}
	_, err := s.w.ReadFrom(b)
	return err
}

// body makes messages of a file's bytes as it is read.
type body struct {
	file     io.Reader
	progress *Progress
	sum      uint32 // of the file so far
	err      error  // why the file has less than was asked for; the message is filled with zeros

	n        int64 // bytes to come
	head     [headBytes]byte
	at, size int // in the message, and its size, with head
}

func (b *body) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if b.at == b.size {
			if b.n == 0 || b.err != nil {
				break
			}
			b.at, b.size = 0, headBytes+int(min(b.n, dataBytes))
			b.head[0] = msgData
			binary.BigEndian.PutUint32(b.head[1:], uint32(b.size-headBytes))
		}
		k := 0
		if b.at < headBytes {
			k = copy(p[n:], b.head[b.at:])
		} else {
			k = min(len(p)-n, b.size-b.at)
			b.take(p[n : n+k])
			b.n -= int64(k)
		}
		b.at += k
		n += k
	}
	if n == 0 {
		err = io.EOF
	}
	return n, err
}

// take fills p from the file.
func (b *body) take(p []byte) {
	n := 0
	if b.err == nil {
		n, b.err = io.ReadFull(b.file, p)
		b.sum = crc32.Update(b.sum, castagnoli, p[:n])
		b.progress.Bytes.Add(int64(n))
		b.progress.SentBytes.Add(int64(n))
	}
	clear(p[n:])
}

func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Flush()
}

// mute ends writing: nobody waits any longer for an other end that may read no more.
func (s *stream) mute() {
	if c, ok := s.rw.(net.Conn); ok {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
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
	if n > uint32(limit(kind)) {
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
