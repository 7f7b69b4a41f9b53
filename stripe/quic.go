package stripe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"

	"plait.dev/plait/stripe/internal/printable"
)

// The carrier: QUIC, one connection for a path, with one stream.

const (
	// quicIdle is after how much silence a connection is given up; a link that comes back after a longer one gets a new connection. quicAlive is how often a sign of
	// life is asked for.
	quicIdle  = 8 * time.Second
	quicAlive = 3 * time.Second
	// quicWindow bounds what waits for a lost packet: 8 MB are 640 Mbit/s at 100 ms.
	quicWindow = 8 << 20
)

// Packets begin with 1200 bytes, the least QUIC can do with (RFC 9000): with their headers every link must carry them (RFC 8200). quic-go's own 1280 are more than that.
// Probes find what a path really takes.
var quicConfig = &quic.Config{InitialPacketSize: 1200, MaxIncomingStreams: 1, MaxIncomingUniStreams: -1, MaxIdleTimeout: quicIdle, KeepAlivePeriod: quicAlive,
	MaxStreamReceiveWindow: quicWindow, MaxConnectionReceiveWindow: quicWindow, HandshakeIdleTimeout: greetTime / 2} // twice that is the whole handshake's

// quicWire is a connection and its stream.
type quicWire struct {
	*quic.Stream
	conn    *quic.Conn
	in      *bufio.Reader
	out     []byte
	heard   pulse
	died    func() bool // after silence: the peer's host says that its process is gone
	ended   atomic.Bool // the peer's half
	writing sync.Mutex  // a stream must not be closed while something is written
	once    sync.Once   // Close
}

func newQUICWire(conn *quic.Conn, stream *quic.Stream, died func() bool) *opened {
	w := &quicWire{Stream: stream, conn: conn, died: died}
	w.in = bufio.NewReaderSize(quicSource{w}, readBuffer)
	return &opened{wire: w, tls: conn.ConnectionState().TLS, rtt: conn.ConnectionStats().SmoothedRTT}
}

// quicSource reads past the buffer.
type quicSource struct{ w *quicWire }

func (s quicSource) Read(p []byte) (int, error) {
	n, err := s.w.Stream.Read(p)
	s.w.sinceHeard()
	if err != nil {
		err = s.w.because(err)
		s.w.ended.Store(errors.Is(err, io.EOF))
	}
	return n, err
}

// quicError has errors mean what they do with TCP.
func quicError(err error) error {
	var left *quic.ApplicationError
	var broken *quic.TransportError
	if errors.As(err, &broken) && broken.Remote { // it gives a reason, and need not have a key for that
		err = &reason{printable.Text(err.Error()), err}
	}
	switch {
	case errors.As(err, &left) && left.Remote:
		return io.EOF
	case broken != nil && broken.Remote && broken.ErrorCode.IsCryptoError():
		return fmt.Errorf("%w: %w", tls.AlertError(uint8(broken.ErrorCode)), err) // RFC 9001, 4.8
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", syscall.ECONNRESET, err) // the peer's process is gone
	}
	return err
}

// because is quicError, for a connection that may have been silent until it was given up.
func (w *quicWire) because(err error) error {
	var silent *quic.IdleTimeoutError
	if errors.As(err, &silent) && w.died() {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return quicError(err)
}

func (w *quicWire) Read(p []byte) (int, error) { return w.in.Read(p) }

func (w *quicWire) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	n, err := w.Stream.Write(p)
	if err != nil {
		err = w.because(err)
	}
	return n, err
}

// writeAll joins the pieces: Write waits for the last packet of each.
func (w *quicWire) writeAll(pieces [][]byte) error {
	if len(pieces) == 1 {
		_, err := w.Write(pieces[0])
		return err
	}
	w.out = w.out[:0]
	for _, p := range pieces {
		w.out = append(w.out, p...)
	}
	_, err := w.Write(w.out)
	return err
}

func (w *quicWire) CloseWrite() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return w.Stream.Close()
}

// Close does not wait. As with TCP, what was written still goes to a peer that has not closed, but for a second only.
func (w *quicWire) Close() error {
	if w.ended.Load() {
		return w.conn.CloseWithError(0, "")
	}
	w.once.Do(func() {
		_ = w.SetDeadline(time.Unix(1, 0))
		_ = w.CloseWrite()
		time.AfterFunc(closeWait, func() { _ = w.conn.CloseWithError(0, "") })
	})
	return nil
}

func (w *quicWire) LocalAddr() net.Addr  { return w.conn.LocalAddr() }
func (w *quicWire) RemoteAddr() net.Addr { return w.conn.RemoteAddr() }

// waitRoom need not wait: Write does, until the last packet of what is written is on its way.
func (w *quicWire) waitRoom() error { return nil }

func (w *quicWire) setAhead(int) {}

func (w *quicWire) kernelSends() bool { return false }

// buffered reports whether at least a whole frame is here already.
func (w *quicWire) buffered() bool { return w.in.Buffered() >= maxFrame }

// acknowledged counts packets, of which a peer that hears anything sends some.
func (w *quicWire) acknowledged() uint64 { return w.conn.ConnectionStats().PacketsReceived }

func (w *quicWire) sinceHeard() time.Duration { return w.heard.since(w.acknowledged()) }

func (w *quicWire) packetRTT() time.Duration { return w.conn.ConnectionStats().SmoothedRTT }

type quicCarrier struct{}

// connected is a socket with one peer: the kernel tells it when there is nobody at the peer's port.
type connected struct{ *net.UDPConn }

func (c connected) WriteMsgUDP(b, oob []byte, _ *net.UDPAddr) (n, oobn int, err error) {
	return c.UDPConn.WriteMsgUDP(b, oob, nil)
}

func (quicCarrier) dial(ctx context.Context, from source, to netip.AddrPort, conf *tls.Config) (*opened, error) {
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.addr, 0)), Control: from.bind}
	udp, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return nil, err
	}
	socket := &quic.Transport{Conn: connected{udp.(*net.UDPConn)}}
	closeAll := func() { socket.Close(); udp.Close() }
	conn, err := socket.Dial(ctx, net.UDPAddrFromAddrPort(to), conf, quicConfig)
	if err != nil {
		closeAll()
		return nil, quicDialError(to, err)
	}
	context.AfterFunc(conn.Context(), closeAll)
	stream, err := conn.OpenStream()
	if err != nil {
		_ = conn.CloseWithError(0, "")
		return nil, refused(quicError(err))
	}
	return newQUICWire(conn, stream, func() bool { return false }), nil // its socket is connected, and hears of it at once
}

// quicDialError says what may be done.
func quicDialError(to netip.AddrPort, err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &reason{fmt.Sprintf("nobody listens at UDP port %d of %v with carrier %s, or a firewall refuses UDP", to.Port(), to.Addr(), QUIC), err}
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded):
		return &reason{fmt.Sprintf("no answer over UDP from %v: a firewall there, or the network, may block UDP; carrier %s is blocked less often", to, TCP), err}
	}
	return fmt.Errorf("QUIC handshake with %v: %w", to, quicError(err))
}

// quicAcceptor is a socket for all of a listener's paths. It stays open, without taking more, until the last one has ended.
type quicAcceptor struct {
	socket   *quic.Transport
	refused  *refusals
	in       *quic.Listener
	greeting greeters

	mu     sync.Mutex
	conns  int
	closed bool
}

// greeted is the key of what to call, in a connection's context, when its handshake is over.
type greeted struct{}

var errBusy = errors.New("too many handshakes at once")

func (quicCarrier) listen(addr string, conf *tls.Config) (acceptor, error) {
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	refused, err := hearRefusals(udp.(*net.UDPConn))
	if err != nil {
		udp.Close()
		return nil, fmt.Errorf("ask for errors of UDP: %w", err)
	}
	a := &quicAcceptor{refused: refused}
	a.socket = &quic.Transport{Conn: refused, ConnContext: a.greet,
		VerifySourceAddress: func(net.Addr) bool { return a.greeting.count() > maxGreeting/4 }} // a round trip more keeps forged addresses out
	if a.in, err = a.socket.Listen(conf, quicConfig); err != nil {
		udp.Close()
		return nil, err
	}
	return a, nil
}

// greet bounds handshakes.
func (a *quicAcceptor) greet(ctx context.Context, who *quic.ClientInfo) (context.Context, error) {
	from := addrPort(who.RemoteAddr).Addr()
	if !a.greeting.enter(from) {
		return nil, errBusy
	}
	done := sync.OnceFunc(func() { a.greeting.leave(from) })
	context.AfterFunc(ctx, done)
	return context.WithValue(ctx, greeted{}, done), nil
}

func (a *quicAcceptor) accept() (caller, error) {
	conn, err := a.in.Accept(context.Background())
	if err != nil {
		return nil, err
	}
	conn.Context().Value(greeted{}).(func())()
	a.count(1)
	context.AfterFunc(conn.Context(), func() { a.count(-1) })
	return quicCaller{conn, a.refused}, nil
}

// count closes the socket when the listener and all connections are.
func (a *quicAcceptor) count(more int) {
	a.mu.Lock()
	a.conns += more
	last := a.closed && a.conns == 0
	a.mu.Unlock()
	if last {
		a.socket.Close()
		a.socket.Conn.Close()
	}
}

func (a *quicAcceptor) Addr() net.Addr { return a.in.Addr() }

func (a *quicAcceptor) Close() error {
	err := a.in.Close()
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.count(0)
	return err
}

type quicCaller struct {
	conn    *quic.Conn
	refused *refusals
}

func (c quicCaller) open(ctx context.Context) (*opened, error) {
	stream, err := c.conn.AcceptStream(ctx)
	if err != nil {
		_ = c.Close()
		return nil, quicError(err)
	}
	return newQUICWire(c.conn, stream, func() bool { return c.refused.died(addrPort(c.conn.RemoteAddr())) }), nil
}

func (c quicCaller) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

func (c quicCaller) Close() error { return c.conn.CloseWithError(0, "") }
