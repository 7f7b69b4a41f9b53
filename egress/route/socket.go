package route

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// chunk is about how many bytes of requests go to the kernel at once: less than a socket's send buffer, so much that the system call costs nothing.
const chunk = 64 << 10

// answers is the receive buffer: room for an error for each request of a chunk.
const answers = 8 << 20

// socket speaks netlink with the kernel of the network namespace it was opened in. It is for one goroutine.
type socket struct {
	fd  int
	seq uint32
	in  []byte
}

func openSocket(protocol int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	s := &socket{fd: fd, in: make([]byte, 256<<10)}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		s.close()
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	for _, option := range []int{unix.NETLINK_CAP_ACK, unix.NETLINK_EXT_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil {
			s.close()
			return nil, fmt.Errorf("set netlink socket's option %d: %w; Linux 4.20 or newer is needed", option, err)
		}
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, answers) != nil { // needs a right that reading does not
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, answers)
	}
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// answer is the kernel's refusal, with its own words if it has some.
type answer struct {
	unix.Errno
	words string
}

func (a answer) Error() string {
	if a.words == "" {
		return a.Errno.Error()
	}
	return a.Errno.Error() + " (" + strings.TrimSuffix(a.words, ".") + ")"
}

func (a answer) Unwrap() error { return a.Errno }

// receive calls f with each message the kernel has ready. The kernel works while the request is sent and while the dump is read, so what is not there
// will not come.
func (s *socket) receive(f func(kind, flags uint16, seq uint32, payload []byte) (more bool, err error)) error {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.in, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the kernel's answer: %w", err)
		}
		if n > len(s.in) {
			return fmt.Errorf("read the kernel's answer: %d bytes, more than fit", n)
		}
		for b := s.in[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			length := int(native.Uint32(b))
			if length < unix.NLMSG_HDRLEN || length > len(b) {
				return fmt.Errorf("read the kernel's answer: a message of %d bytes in %d", length, len(b))
			}
			more, err := f(native.Uint16(b[4:]), native.Uint16(b[6:]), native.Uint32(b[8:]), b[unix.NLMSG_HDRLEN:length])
			if err != nil || !more {
				return err
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// refusal reads an error message; nil is an acknowledgement.
func refusal(flags uint16, payload []byte) error {
	if len(payload) < 4+unix.NLMSG_HDRLEN {
		return errors.New("read the kernel's answer: it is cut short")
	}
	code := int32(native.Uint32(payload))
	if code == 0 {
		return nil
	}
	a := answer{Errno: unix.Errno(-code)}
	skip := 4 + unix.NLMSG_HDRLEN
	if flags&unix.NLM_F_CAPPED == 0 { // the whole request comes back
		skip = 4 + int(native.Uint32(payload[4:]))
	}
	if flags&unix.NLM_F_ACK_TLVS != 0 && skip <= len(payload) {
		attributes(payload[skip:], func(kind uint16, value []byte) {
			if kind == unix.NLMSGERR_ATTR_MSG {
				a.words = string(value[:max(len(value)-1, 0)])
			}
		})
	}
	return a
}

// do sends n requests in their order, many at once, and tells done what the kernel says to each. encode begins and ends request i. The error is of the
// socket: what it leaves untold is unknown.
func (s *socket) do(n int, encode func(m *message, seq uint32, i int), done func(i int, err error)) error {
	var m message
	for from := 0; from < n; {
		m.b = m.b[:0]
		first := s.seq + 1
		to := from
		for ; to < n && len(m.b) < chunk; to++ {
			s.seq++
			encode(&m, s.seq, to)
		}
		m.acknowledge() // the last: all others only speak up if they fail
		if err := unix.Sendto(s.fd, m.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("send %d requests to the kernel: %w", to-from, err)
		}
		refused := map[uint32]error{}
		err := s.receive(func(kind, flags uint16, seq uint32, payload []byte) (bool, error) {
			if kind == unix.NLMSG_ERROR {
				refused[seq] = refusal(flags, payload)
			}
			return seq != s.seq || kind != unix.NLMSG_ERROR, nil
		})
		if err != nil {
			return err
		}
		for i := from; i < to; i++ {
			done(i, refused[first+uint32(i-from)])
		}
		from = to
	}
	return nil
}

// ask sends one request and returns what the kernel says to it.
func (s *socket) ask(encode func(m *message, seq uint32)) (out error) {
	if err := s.do(1, func(m *message, seq uint32, _ int) { encode(m, seq) }, func(_ int, err error) { out = err }); err != nil {
		return err
	}
	return out
}

// get sends a request whose answer is one message, and returns its payload.
func (s *socket) get(encode func(m *message, seq uint32)) (out []byte, err error) {
	var m message
	s.seq++
	encode(&m, s.seq)
	if err := unix.Sendto(s.fd, m.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send a request to the kernel: %w", err)
	}
	err = s.receive(func(kind, flags uint16, seq uint32, payload []byte) (bool, error) {
		if seq != s.seq {
			return true, nil
		}
		if kind == unix.NLMSG_ERROR {
			return false, refusal(flags, payload)
		}
		out = append([]byte(nil), payload...)
		return false, nil
	})
	return out, err
}

// dump asks for a list and calls f with each item. When the list changed while it was read, it is read again after reset.
func (s *socket) dump(encode func(m *message, seq uint32), reset func(), f func(payload []byte)) error {
	for range 10 {
		var m message
		s.seq++
		encode(&m, s.seq)
		native.PutUint16(m.b[6:], native.Uint16(m.b[6:])|unix.NLM_F_DUMP)
		if err := unix.Sendto(s.fd, m.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("send a request to the kernel: %w", err)
		}
		reset()
		interrupted := false
		err := s.receive(func(kind, flags uint16, seq uint32, payload []byte) (bool, error) {
			interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case seq != s.seq:
			case kind == unix.NLMSG_ERROR:
				return false, refusal(flags, payload)
			case kind == unix.NLMSG_DONE:
				if len(payload) >= 4 && int32(native.Uint32(payload)) < 0 {
					return false, answer{Errno: unix.Errno(-int32(native.Uint32(payload)))}
				}
				return false, nil
			default:
				f(payload)
			}
			return true, nil
		})
		if errors.Is(err, os.ErrNotExist) { // a table without routes is none, for a dump
			return nil
		}
		if err != nil || !interrupted {
			return err
		}
	}
	return errors.New("read the kernel's tables: they change all the time")
}
