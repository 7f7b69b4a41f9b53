package measure

import (
	"encoding/binary"
	"fmt"
	"iter"
	"unsafe"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// conn is a netlink socket of one namespace. It stays in that namespace whichever thread uses it, and a request
// allocates nothing: a sample must cost microseconds, because in the guest every instruction takes virtual time.
// Not safe for concurrent use.
type conn struct {
	fd  int
	seq uint32
	buf []byte
}

// openNetlink opens a netlink socket of a protocol (unix.NETLINK_ROUTE, ...) inside the namespace.
func openNetlink(ns string, protocol int) (*conn, error) {
	// The kernel fills at most 32 KiB per read of a dump (net/netlink/af_netlink.c, netlink_dump).
	c := &conn{fd: -1, buf: make([]byte, 64<<10)}
	err := netns.Do(ns, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", ns, err)
	}
	return c, nil
}

func (c *conn) close() error { return unix.Close(c.fd) }

// call makes a system call past Go's scheduler, which would wake its monitor thread for it, at every sample of an idle guest.
// It does not block: the kernel answers a request before the write returns.
func (c *conn) call(number uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(number, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// ask sends a request made by request and calls each for every message of the answer; data is valid during the call only.
func (c *conn) ask(request []byte, each func(data []byte) error) error {
	c.seq++
	binary.NativeEndian.PutUint32(request[8:], c.seq)
	if _, err := c.call(unix.SYS_WRITE, request); err != 0 {
		return fmt.Errorf("send netlink request: %w", err)
	}
	for {
		n, err := c.call(unix.SYS_READ, c.buf)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return fmt.Errorf("receive netlink answer: %w", err)
		}
		if done, err := c.messages(c.buf[:n], each); done || err != nil {
			return err
		}
	}
}

// messages calls each for the messages of one datagram that answer the last request, and says whether they were the last.
func (c *conn) messages(b []byte, each func(data []byte) error) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return true, fmt.Errorf("receive netlink answer: message of %d bytes in %d", size, len(b))
		}
		data, seq := b[unix.SizeofNlMsghdr:size], binary.NativeEndian.Uint32(b[8:])
		b = b[min(len(b), (size+3)&^3):]
		if seq != c.seq {
			continue
		}
		switch kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if errno := -int32(binary.NativeEndian.Uint32(data)); errno != 0 {
				return true, unix.Errno(errno)
			}
			return true, nil
		}
		if err := each(data); err != nil {
			return true, err
		}
		done = flags&unix.NLM_F_MULTI == 0
	}
	return done, nil
}

// request makes a netlink message with NLM_F_REQUEST and the given flags.
func request(kind uint16, flags uint16, data []byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(data))
	binary.NativeEndian.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(data)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	return append(b, data...)
}

// attributes goes through netlink attributes: type without the flag bits, and value.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED), b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+3)&^3):]
		}
	}
}
