package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

const (
	// atOnce is how many requests go to the kernel with one system call: less than a socket's send buffer, so much that the call costs nothing.
	atOnce = 512
	// answerBuffer holds an error for each of them, which carries the whole request.
	answerBuffer = 8 << 20
	// messageBuffer is more than the kernel puts into one part of a list: 32 KB (net/netlink/af_netlink.c, netlink_recvmsg).
	messageBuffer = 64 << 10
	// patience is for an answer the kernel had no memory for (all others are there when a request has been sent), and for that memory.
	patience = time.Second
)

// socket speaks routing netlink. It is for one goroutine.
type socket struct{ *netlink.Conn }

// dial opens a socket to the kernel of the network namespace of this thread.
func dial() (*socket, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: true, MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w; Linux 4.20 or newer is needed", err)
	}
	if err := c.SetReadBuffer(answerBuffer); err != nil {
		c.Close()
		return nil, fmt.Errorf("make room for netlink answers: %w", err)
	}
	return &socket{c}, nil
}

// refusal is the kernel's, with its own words if it has some.
type refusal struct{ *netlink.OpError }

func (r refusal) Error() string {
	if r.Message == "" {
		return r.Err.Error()
	}
	return fmt.Sprintf("%v (%s)", r.Err, strings.TrimSuffix(r.Message, "."))
}

// refused tells an answer of the kernel from an error of the socket.
func refused(err error) (r refusal, is bool) {
	if !errors.As(err, &r.OpError) {
		return r, false
	}
	_, is = r.Err.(unix.Errno) //nolint:errorlint // of a socket's error it is wrapped
	return r, is
}

// explain returns an error as it is shown.
func explain(err error) error {
	if r, is := refused(err); is {
		return r
	}
	return err
}

// transact sends requests together and returns what the kernel says to each. The error is of the socket: what became of the requests is unknown then.
func (s *socket) transact(requests []netlink.Message) ([]error, error) {
	requests[len(requests)-1].Header.Flags |= netlink.Acknowledge // all others only speak up if they fail
	for i := range requests {
		requests[i].Header.Sequence = uint32(i + 1) // its place, for the answers
	}
	if _, err := s.SendMessages(requests); err != nil {
		return nil, fmt.Errorf("send %d requests to the kernel: %w", len(requests), err)
	}
	_ = s.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = s.SetReadDeadline(time.Time{}) }()
	var missed error
	out := make([]error, len(requests))
	for answered := 0; answered < len(requests); {
		answers, err := s.Receive()
		r, is := refused(err)
		switch {
		case is && 0 < r.Sequence && int(r.Sequence) <= len(out):
			answered = int(r.Sequence)
			out[answered-1] = r
		case errors.Is(err, unix.ENOBUFS):
			missed = err // what did arrive is taken off all the same, or it would be the answer to the next request
		case err != nil:
			return nil, fmt.Errorf("read the kernel's answer: %w", errors.Join(missed, err))
		}
		for _, a := range answers {
			answered = int(a.Header.Sequence)
		}
	}
	if missed != nil {
		return nil, fmt.Errorf("read the kernel's answers: %w", missed)
	}
	return out, nil
}

// get sends a request whose answer is one message, or an acknowledgement, and returns its payload.
func (s *socket) get(m netlink.Message) ([]byte, error) {
	answers, err := s.Execute(m)
	if err == nil && len(answers) == 0 {
		err = errors.New("the kernel's answer is empty")
	}
	if err != nil {
		return nil, explain(err)
	}
	return answers[0].Data, nil
}

// each asks for a list and calls read with each item. When the list changed while it was read, it calls again and reads from the beginning. A change behind
// the last item goes unseen; its event leads to another comparison.
func (s *socket) each(m netlink.Message, again func(), read func(payload []byte)) error {
	m.Header.Flags |= netlink.Dump
	for range 10 {
		if _, err := s.Send(m); err != nil {
			return fmt.Errorf("send a request to the kernel: %w", err)
		}
		interrupted := false
		for item, err := range s.ReceiveIter() {
			if errors.Is(err, unix.ENOENT) { // a table without routes is none
				return nil
			}
			if err != nil {
				return explain(err)
			}
			interrupted = interrupted || item.Header.Flags&netlink.DumpInterrupted != 0
			read(item.Data)
		}
		if !interrupted {
			return nil
		}
		again()
	}
	return errors.New("read the kernel's tables: they change all the time")
}

// list asks for a list and keeps what read takes of it.
func list[K comparable, V any](s *socket, m netlink.Message, read func(payload []byte) (K, V, bool)) (map[K]V, error) {
	all := map[K]V{}
	return all, s.each(m, func() { clear(all) }, func(payload []byte) {
		if k, v, ok := read(payload); ok {
			all[k] = v
		}
	})
}

// body is what a request consists of: a structure, then attributes. netlink.AttributeEncoder would allocate for each of them.
type body []byte

func (b body) attribute(kind uint16, value ...byte) body {
	b = native.AppendUint16(b, uint16(4+len(value)))
	b = append(native.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(value)&3)...)
}

func (b body) number(kind uint16, value uint32) body {
	return native.AppendUint32(native.AppendUint16(native.AppendUint16(b, 8), kind), value)
}

func (b body) address(kind uint16, a netip.Addr) body { return b.attribute(kind, a.AsSlice()...) }

// request makes a message of it.
func (b body) request(kind uint16, flags netlink.HeaderFlags) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: b}
}

// attributes calls f for each attribute, and reports whether all could be read.
func attributes(b []byte, f func(ad *netlink.AttributeDecoder)) bool {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return false
	}
	for ad.Next() {
		f(ad)
	}
	return ad.Err() == nil
}

// address reads an attribute of 4 or 16 bytes; another one is no valid address.
func address(ad *netlink.AttributeDecoder) (a netip.Addr) {
	ad.Do(func(b []byte) error { a, _ = netip.AddrFromSlice(b); return nil })
	return a
}

// family of an address, for the kernel.
func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
