package stripe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sctpAcceptor listens with a socket for each address. One socket for all of them would tell each dialer all addresses, and the
// kernel would send to any of them what belongs to one path.
type sctpAcceptor struct {
	conf    *tls.Config
	arrived chan *net.TCPConn
	ctx     context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	at      netip.AddrPort // as listened on
	sockets map[netip.Addr]net.Listener
}

func (sctpCarrier) listen(addr string, conf *tls.Config) (acceptor, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	a := &sctpAcceptor{conf: conf, arrived: make(chan *net.TCPConn), ctx: ctx, stop: stop, sockets: map[netip.Addr]net.Listener{}}
	host, _ := netip.AddrFromSlice(at.IP) // not valid: all
	host = host.Unmap()
	a.at = netip.AddrPortFrom(host, uint16(at.Port))
	if host.IsValid() && !host.IsUnspecified() {
		err = a.open(host)
	} else {
		a.at = netip.AddrPortFrom(netip.IPv6Unspecified(), a.at.Port())
		if err = a.follow(); err == nil {
			go a.runFollow()
		}
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// open listens at an address. The first one decides the port, if any will do. It is called with the acceptor locked, or before anybody else has it.
func (a *sctpAcceptor) open(addr netip.Addr) error {
	f, err := sctpSocket(addr)
	if err != nil {
		return err
	}
	defer f.Close()
	sys, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = sys.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // of paths that have ended
		if refused = unix.Bind(int(fd), sockaddr(netip.AddrPortFrom(addr, a.at.Port()))); refused == nil {
			refused = unix.Listen(int(fd), unix.SOMAXCONN)
		}
	})
	if err = cmp.Or(err, refused); err != nil {
		return fmt.Errorf("listen at %v over SCTP: %w", netip.AddrPortFrom(addr, a.at.Port()), err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	a.at = netip.AddrPortFrom(a.at.Addr(), addrPort(l.Addr()).Port())
	a.sockets[addr] = l
	go a.runAccept(l)
	return nil
}

func (a *sctpAcceptor) runAccept(l net.Listener) {
	for a.ctx.Err() == nil {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			sleep(a.ctx, 100*time.Millisecond)
			continue
		}
		select {
		case a.arrived <- conn.(*net.TCPConn):
		case <-a.ctx.Done():
			conn.Close()
		}
	}
}

// follow has a socket at each address of a link, for as long as this host has the address: if the link loses its carrier, the others lead to
// it, and a dialer that has moved knows no other.
func (a *sctpAcceptor) follow() error {
	links, err := Links()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed error
	for _, l := range links {
		for _, p := range l.Addrs {
			if a.sockets[p.Addr()] == nil && a.ctx.Err() == nil {
				failed = cmp.Or(failed, a.open(p.Addr()))
			}
		}
	}
	have, err := addresses()
	for addr, l := range a.sockets {
		if err == nil && !have[addr] {
			l.Close()
			delete(a.sockets, addr)
		}
	}
	return failed
}

// runFollow follows changes. An address that fails is tried again.
func (a *sctpAcceptor) runFollow() {
	events := watchLinks(a.ctx)
	again := time.NewTicker(relistEvery)
	defer again.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-events:
		case <-again.C:
		}
		_ = a.follow()
	}
}

func (a *sctpAcceptor) Addr() net.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return net.TCPAddrFromAddrPort(a.at)
}

func (a *sctpAcceptor) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	for _, l := range a.sockets {
		l.Close()
	}
	return nil
}

func (a *sctpAcceptor) accept() (caller, error) {
	select {
	case conn := <-a.arrived:
		return sctpCaller{conn, a.conf}, nil
	case <-a.ctx.Done():
		return nil, net.ErrClosed
	}
}

type sctpCaller struct {
	*net.TCPConn
	conf *tls.Config
}

func (c sctpCaller) open(ctx context.Context) (*opened, error) {
	return openSCTP(ctx, c.TCPConn, func(raw net.Conn) *tls.Conn { return tls.Server(raw, c.conf) })
}
