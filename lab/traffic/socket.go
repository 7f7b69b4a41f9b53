package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// sctpNoDelay is SCTP_NODELAY (include/uapi/linux/sctp.h).
const sctpNoDelay = 3

// newSocket makes a non-blocking socket of the protocol in a namespace. The same path serves all three protocols, and none
// of Go's own defaults (MPTCP listeners, keepalives) apply.
func newSocket(ns, protocol string, addr netip.Addr) (*os.File, int, error) {
	family, number := unix.AF_INET6, unix.IPPROTO_TCP
	if addr.Is4() {
		family = unix.AF_INET
	}
	switch protocol {
	case "mptcp":
		number = unix.IPPROTO_MPTCP
	case "sctp":
		number = unix.IPPROTO_SCTP
	}
	fd := -1
	err := netns.Do(ns, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, number)
		return err
	})
	if err != nil {
		return nil, -1, fmt.Errorf("open %s socket in %s: %w", protocol, ns, err)
	}
	if protocol == "sctp" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, sctpNoDelay, 1)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	f := os.NewFile(uintptr(fd), protocol)
	if err != nil {
		f.Close()
		return nil, -1, fmt.Errorf("set no-delay on %s socket in %s: %w", protocol, ns, err)
	}
	return f, fd, nil
}

func sockaddr(addr netip.Addr, port uint16) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: int(port)}
}

// setCongestion chooses the congestion control of a socket that is neither connected nor listening, so that the handshake
// knows it (ECN, initial window) and accepted sockets inherit it.
func setCongestion(fd int, protocol, name string) error {
	if protocol == "sctp" {
		return fmt.Errorf("set congestion control %s: SCTP has its own and no other", name)
	}
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	if err == nil {
		return nil
	}
	available, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	return fmt.Errorf("set congestion control %s: %w (available: %s)", name, err, strings.TrimSpace(string(available)))
}

// listener accepts connections without keepalives, which Go turns on and which would put packets into silences.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp := accepted.(*net.TCPConn)
	if err := tcp.SetKeepAlive(false); err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return newConn(tcp)
}

// listenAddr is the sender's address, or for MPTCP the wildcard: subflows also come to the addresses it announces.
func (r *run) listenAddr() netip.Addr {
	switch {
	case r.app.Protocol != "mptcp":
		return r.ends.From
	case r.ends.From.Is4():
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// listenFile opens the sender's listening socket.
func (r *run) listenFile() (*os.File, error) {
	e := r.ends
	f, fd, err := newSocket(e.FromNS, r.app.Protocol, e.From)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && r.app.Congestion != "" {
		err = setCongestion(fd, r.app.Protocol, r.app.Congestion)
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(r.listenAddr(), e.Port))
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on %s port %d at %s: %w", e.From, e.Port, e.FromNS, err)
	}
	return f, nil
}

// listen opens the sender's listening socket for this process. Go takes SCTP sockets for TCP ones: reads, writes and
// deadlines are the same, and what differs (keepalives) is refused by the kernel without harm.
func (r *run) listen() (net.Listener, error) {
	f, err := r.listenFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s port %d at %s: %w", r.ends.From, r.ends.Port, r.ends.FromNS, err)
	}
	return listener{l}, nil
}

// connected waits until a connection that was started is up or has failed.
func connected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = err
		case code != 0:
			failed = unix.Errno(code)
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	return errors.Join(err, failed)
}

// dial connects the receiver to the sender and says how long that took.
func (r *run) dial(ctx context.Context) (net.Conn, time.Duration, error) {
	e := r.ends
	f, fd, err := newSocket(e.ToNS, r.app.Protocol, e.From)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })()
	if e.To.IsValid() {
		if err := unix.Bind(fd, sockaddr(e.To, 0)); err != nil {
			return nil, 0, fmt.Errorf("bind %s at %s: %w", e.To, e.ToNS, err)
		}
	}
	began := r.since()
	err = unix.Connect(fd, sockaddr(e.From, e.Port))
	if errors.Is(err, unix.EINPROGRESS) {
		err = connected(f)
	}
	took := r.since() - began
	if err != nil {
		return nil, 0, fmt.Errorf("connect %s port %d from %s: %w", e.From, e.Port, e.ToNS, err)
	}
	file, err := net.FileConn(f)
	if err != nil {
		return nil, 0, fmt.Errorf("connect %s port %d from %s: %w", e.From, e.Port, e.ToNS, err)
	}
	tcp := file.(*net.TCPConn)
	_ = tcp.SetKeepAlive(false)
	c, err := newConn(tcp)
	return c, took, err
}
