package measure

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// endedGroups are the groups of NETLINK_SOCK_DIAG to which the kernel tells of TCP sockets that are no more, of IPv4 and of IPv6 (enum
// sknetlink_groups in include/uapi/linux/sock_diag.h; sock_diag_broadcast_destroy in net/core/sock_diag.c).
const endedGroups = 1<<0 | 1<<2

// endedBufferBytes holds some thousand sockets that end within an interval.
const endedBufferBytes = 4 << 20

// openEnded opens a socket that hears of TCP sockets of the namespace at their end, with what they have counted: what was acknowledged after the
// last sample of a connection, and the whole of one between two samples.
func openEnded(ns string) (*conn, error) {
	c, err := openNetlink(ns, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, err
	}
	err = errors.Join(unix.SetNonblock(c.fd, true), unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, endedBufferBytes),
		unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: endedGroups}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the ends of sockets in %s: %w", ns, err), c.close())
	}
	return c, nil
}

// heard calls each for every message that has come by itself; data is valid during the call only.
func (c *conn) heard(each func(data []byte) error) error {
	for {
		n, err := c.call(unix.SYS_READ, c.buf)
		switch err {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return nil
		default: // ENOBUFS: some were lost
			return fmt.Errorf("hear of the ends of sockets: %w", err)
		}
		if _, err := c.messages(c.buf[:n], each); err != nil {
			return err
		}
	}
}

// hearEnds adds what ended sockets have counted since their last sample. k is the index of the coming one.
func (s *sockets) hearEnds(k int) error {
	for _, dump := range s.dumps {
		if dump.ended == nil {
			continue
		}
		if err := dump.ended.heard(s.reader(dump, func(app int, d *diag) { s.last(k, app, d) })); err != nil {
			return err
		}
	}
	return nil
}

// last adds the counts of a socket that is not sampled any more to the interval after its last sample, which is incomplete but taken for a whole one. A
// listening socket, or a connection that never was, has delivered nothing.
func (s *sockets) last(k, app int, d *diag) {
	f := s.flows[d.cookie]
	if f == nil && d.bytesAcked == 0 {
		return
	}
	f = s.flow(app, d)
	if d.bytesAcked == f.acked && d.resent == f.resent && d.spurious == f.spurious {
		return
	}
	if f.first < 0 {
		f.first = k
	}
	for q, v := range f.counts(d, s.cfg.Every) {
		f.values[quantityGoodput+q] = append(f.values[quantityGoodput+q], v)
	}
}

// lastOfAll takes what is left to be counted at the end, of sockets that are still there and of those that end while these are asked for.
func (s *sockets) lastOfAll(k int) error {
	seen := len(s.order)
	err := errors.Join(s.hearEnds(k), s.each(func(app int, d *diag) { s.last(k, app, d) }), s.hearEnds(k))
	slices.SortFunc(s.order[seen:], byEnds)
	return err
}
