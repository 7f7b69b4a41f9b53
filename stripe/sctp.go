package stripe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The carrier: TLS 1.3 over the kernel's SCTP, an association of one address at either end for a path. A one-to-one socket
// (RFC 6458, 4) is used as one of TCP is, so package net takes it for one.

// Options of the socket, and what belongs to them (include/uapi/linux/sctp.h).
const (
	sctpRTOInfo    = 0
	sctpNoDelay    = 3
	sctpStatus     = 14
	sctpDelayedAck = 16
	sctpAssocStats = 112
)

const (
	// sctpRTOMin and sctpAckDelay, in milliseconds, are TCP's on Linux. SCTP's are 1000 and 200.
	sctpRTOMin, sctpRTOInitial, sctpRTOMax = 200, 1000, 60000
	sctpAckDelay                           = 40
	// sctpBuffer is asked for; the kernel gives net.core.rmem_max or wmem_max at most. It does not grow by itself as TCP's does.
	sctpBuffer = 4 << 20
	// sctpMessage is the most that is written at once. What does not fit into the buffer for sending is refused.
	sctpMessage = 16 << 10
)

// sctpSocket makes a socket that does not block.
func sctpSocket(addr netip.Addr) (*os.File, error) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, fmt.Errorf("this kernel has no SCTP (as root: modprobe sctp); use carrier %s or %s: %w", TCP, QUIC, err)
	}
	if err != nil {
		return nil, fmt.Errorf("SCTP socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, sctpNoDelay, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, sctpBuffer),
		setSCTP(fd, sctpRTOInfo, &[4]uint32{0, sctpRTOInitial, sctpRTOMax, sctpRTOMin}),
		setSCTP(fd, sctpDelayedAck, &[3]uint32{0, sctpAckDelay, 2}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("options of an SCTP socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "sctp"), nil
}

func setSCTP[T any](fd, option int, value *T) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_SCTP, option, unsafe.String((*byte)(unsafe.Pointer(value)), unsafe.Sizeof(*value)))
}

// getSCTP reads an option, of which the kernel may know less or more than T.
func getSCTP[T any](fd uintptr, option int) (value T, ok bool) {
	size := uint32(unsafe.Sizeof(value))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_SCTP, uintptr(option), uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	return value, e == 0
}

// statusOfSCTP is struct sctp_status.
type statusOfSCTP struct {
	_         [24]byte
	_         [136]byte // of the path: association, address, state
	CwndBytes uint32
	SRTTms    uint32
	_         [2]uint32
}

// statsOfSCTP is the beginning of struct sctp_assoc_stats.
type statsOfSCTP struct {
	_         [8]byte
	_         [128]byte
	_         [4]uint64
	PacketsIn uint64
}

// messages writes what has a size that a message may have.
type messages struct{ *net.TCPConn }

func (m messages) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		n := 0
		n, err = m.TCPConn.Write(p[:min(len(p), sctpMessage)])
		written += n
		p = p[n:]
	}
	return written, err
}

// sctpWire differs from TCP's in what it asks the kernel.
type sctpWire struct {
	*tcpWire
	ahead, buffer int
	heard         pulse
}

func (w *sctpWire) setAhead(bytes int) { w.ahead = bytes }

// waitRoom has the buffer for sending hold the congestion window and what may wait, and waits until there is room in it. The kernel
// doubles what it is told, for the memory around the data (socket(7)).
func (w *sctpWire) waitRoom() error {
	_ = w.raw.sys.Control(func(fd uintptr) {
		status, ok := getSCTP[statusOfSCTP](fd, sctpStatus)
		want := max(2*sctpMessage, int(status.CwndBytes)+w.ahead/2)
		if ok && (want > w.buffer || want < w.buffer/2) {
			w.buffer = want
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, want)
		}
	})
	return w.tcpWire.waitRoom()
}

// acknowledged counts packets.
func (w *sctpWire) acknowledged() (packets uint64) {
	_ = w.raw.sys.Control(func(fd uintptr) {
		if stats, ok := getSCTP[statsOfSCTP](fd, sctpAssocStats); ok {
			packets = stats.PacketsIn
		}
	})
	return packets
}

func (w *sctpWire) packetRTT() (rtt time.Duration) {
	_ = w.raw.sys.Control(func(fd uintptr) {
		if status, ok := getSCTP[statusOfSCTP](fd, sctpStatus); ok {
			rtt = time.Duration(status.SRTTms) * time.Millisecond
		}
	})
	return rtt
}

func (w *sctpWire) sinceHeard() time.Duration { return w.heard.since(w.acknowledged()) }

// openSCTP does TLS's handshake.
func openSCTP(ctx context.Context, conn *net.TCPConn, wrap func(net.Conn) *tls.Conn) (*opened, error) {
	o, err := openTCP(ctx, messages{conn}, wrap)
	if err == nil {
		o.wire = &sctpWire{tcpWire: o.wire.(*tcpWire), ahead: aheadMin}
	}
	return o, err
}

type sctpCarrier struct{}

func (sctpCarrier) dial(ctx context.Context, from source, to netip.AddrPort, conf *tls.Config) (*opened, error) {
	start := time.Now()
	conn, err := connectSCTP(ctx, from, to)
	if err != nil {
		return nil, err
	}
	rtt := time.Since(start) / 2
	o, err := openSCTP(ctx, conn, func(c net.Conn) *tls.Conn { return tls.Client(c, conf) })
	if err != nil {
		return nil, fmt.Errorf("TLS handshake with %v: %w", to, err)
	}
	o.rtt = rtt
	return o, nil
}

// connectSCTP makes an association, of two round trips.
func connectSCTP(ctx context.Context, from source, to netip.AddrPort) (*net.TCPConn, error) {
	f, err := sctpSocket(to.Addr())
	if err != nil {
		return nil, err
	}
	defer f.Close() // the connection has a copy
	sys, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := from.bind("sctp", to.String(), sys); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })()
	var refused error
	if err := sys.Control(func(fd uintptr) {
		if refused = unix.Bind(int(fd), sockaddr(netip.AddrPortFrom(from.addr, 0))); refused == nil {
			refused = unix.Connect(int(fd), sockaddr(to))
		}
	}); err != nil {
		return nil, err
	}
	if errors.Is(refused, unix.EINPROGRESS) {
		refused = established(sys)
	}
	switch {
	case errors.Is(refused, os.ErrDeadlineExceeded):
		return nil, &reason{fmt.Sprintf("no answer over SCTP from %v: NATs and most firewalls let none through; carrier %s gets through more often", to, TCP), refused}
	case refused != nil:
		return nil, fmt.Errorf("connect to %v over SCTP: %w", to, refused)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// established waits until an association is there, or has failed.
func established(sys syscall.RawConn) error {
	var failed error
	err := sys.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		if failed = err; err != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, failed)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}
