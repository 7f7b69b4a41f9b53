package stripe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The carrier: TLS 1.3 over TCP, one connection for a path.

// readBuffer is read from a socket at once: records come in groups on fast paths.
const readBuffer = 128 << 10

// tcpWire is a TLS connection over gather over TCP.
type tcpWire struct {
	*tls.Conn
	raw *gather
}

// gather stands between TLS and TCP: it lets several records go, or come, by one system call.
type gather struct {
	net.Conn
	in  *bufio.Reader
	sys syscall.RawConn

	mu    sync.Mutex // TLS answers a peer's request for new keys from the reader's goroutine
	out   []byte
	delay bool // writes are kept in out
}

func (g *gather) Read(p []byte) (int, error) { return g.in.Read(p) }

func (g *gather) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.delay {
		g.out = append(g.out, p...)
		return len(p), nil
	}
	return g.Conn.Write(p)
}

// hold keeps writes back until flush.
func (g *gather) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = true
}

func (g *gather) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.delay {
		return nil
	}
	_, err := g.Conn.Write(g.out)
	g.out, g.delay = g.out[:0], false
	return err
}

// kernelConn is a connection of the kernel.
type kernelConn interface {
	net.Conn
	syscall.Conn
}

func newTCPWire(conn kernelConn, wrap func(net.Conn) *tls.Conn) (*tcpWire, error) {
	sys, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	raw := &gather{Conn: conn, in: bufio.NewReaderSize(conn, readBuffer), sys: sys}
	w := &tcpWire{Conn: wrap(raw), raw: raw}
	w.setAhead(aheadMin)
	return w, nil
}

func (w *tcpWire) writeAll(pieces [][]byte) error {
	if len(pieces) > 1 || len(pieces[0]) > maxFrame {
		w.raw.hold()
	}
	for _, p := range pieces {
		if _, err := w.Conn.Write(p); err != nil {
			return err
		}
	}
	return w.raw.flush()
}

// Close does not say goodbye as TLS does, which waits when the path is full: the session has its own farewell.
func (w *tcpWire) Close() error { return w.raw.Conn.Close() }

func (w *tcpWire) kernelSends() bool { return true }

// buffered reports whether at least a whole record is here already.
func (w *tcpWire) buffered() bool { return w.raw.in.Buffered() > maxFrame+512 }

// sinceHeard asks TCP_INFO: tcpi_last_ack_recv counts every acceptable acknowledgement, in milliseconds (tcp_ack in net/ipv4/tcp_input.c).
func (w *tcpWire) sinceHeard() time.Duration {
	if info := w.info(); info != nil {
		return time.Duration(info.Last_ack_recv) * time.Millisecond
	}
	return time.Hour
}

func (w *tcpWire) packetRTT() time.Duration {
	if info := w.info(); info != nil {
		return time.Duration(info.Rtt) * time.Microsecond
	}
	return 0
}

func (w *tcpWire) info() (info *unix.TCPInfo) {
	_ = w.raw.sys.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info
}

// acknowledged does not grow with the answers to probes of a full window (tcp_snd_una_update in net/ipv4/tcp_input.c).
func (w *tcpWire) acknowledged() (bytes uint64) {
	if info := w.info(); info != nil {
		return info.Bytes_acked
	}
	return 0
}

// setAhead sets TCP_NOTSENT_LOWAT: the kernel says there is room when less than half of it waits to be sent (tcp(7)).
func (w *tcpWire) setAhead(bytes int) {
	_ = w.raw.sys.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes) })
}

// waitRoom asks poll(2), which also makes the kernel tell when there is room later, and waits for that.
func (w *tcpWire) waitRoom() error {
	return w.raw.sys.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

type tcpCarrier struct{}

// errUnanswered is a connection on which nothing came. The first that both ends send fills a packet, and some links lose those without a sign: tunnels, PPPoE,
// behind a firewall that drops ICMP.
var errUnanswered = errors.New("no answer on a connection")

// smallSegment is what a packet carries on a link that loses larger ones: that makes 1280 bytes with the headers of IPv6, which every link must carry (RFC 8200).
const smallSegment = 1220

// control prepares a socket. TCP_MAXSEG is for both directions: the peer is told it.
func (s source) control(network, address string, c syscall.RawConn) error {
	if s.small {
		_ = c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, smallSegment) })
	}
	return s.bind(network, address, c)
}

func (tcpCarrier) dial(ctx context.Context, from source, to netip.AddrPort, conf *tls.Config) (*opened, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.addr, 0)), Control: from.control}
	start := time.Now()
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	rtt := time.Since(start)
	o, err := openTCP(ctx, conn.(*net.TCPConn), func(c net.Conn) *tls.Conn { return tls.Client(c, conf) })
	switch {
	case late(err):
		text := fmt.Sprintf("connected to the server over this link (%v), and then no answer: a firewall lets no more through, the link loses large packets, or the server is too busy", to)
		return nil, &reason{text, errors.Join(errUnanswered, err)}
	case err != nil:
		return nil, fmt.Errorf("TLS handshake with %v: %w", to, err)
	}
	o.rtt = rtt
	return o, nil
}

// openTCP does the handshake.
func openTCP(ctx context.Context, conn kernelConn, wrap func(net.Conn) *tls.Conn) (*opened, error) {
	start := time.Now()
	w, err := newTCPWire(conn, wrap)
	if err == nil {
		err = w.HandshakeContext(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &opened{wire: w, tls: w.ConnectionState(), rtt: time.Since(start)}, nil
}

func (tcpCarrier) listen(addr string, conf *tls.Config) (acceptor, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return tcpAcceptor{l.(*net.TCPListener), conf}, nil
}

type tcpAcceptor struct {
	*net.TCPListener
	conf *tls.Config
}

func (a tcpAcceptor) accept() (caller, error) {
	conn, err := a.AcceptTCP()
	return tcpCaller{conn, a.conf}, err
}

type tcpCaller struct {
	*net.TCPConn
	conf *tls.Config
}

func (c tcpCaller) open(ctx context.Context) (*opened, error) {
	return openTCP(ctx, c.TCPConn, func(raw net.Conn) *tls.Conn { return tls.Server(raw, c.conf) })
}
