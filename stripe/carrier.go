package stripe

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"
)

// carrier makes the connections that paths are: wires. A carrier is one file.
type carrier interface {
	// dial makes a wire from a link of this host, and keeps it to that link.
	dial(ctx context.Context, from source, to netip.AddrPort, conf *tls.Config) (*opened, error)
	// listen takes dialers at host:port. An empty host is every address of this host.
	listen(addr string, conf *tls.Config) (acceptor, error)
}

// opened is a wire after its handshake.
type opened struct {
	wire
	tls tls.ConnectionState
	rtt time.Duration // a round trip; at the listener with some computing
}

// acceptor is where dialers arrive.
type acceptor interface {
	// accept waits for one, of whom nothing is known yet.
	accept() (caller, error)
	Addr() net.Addr
	Close() error
}

// caller is a dialer that has arrived.
type caller interface {
	// open does the handshake; the end of ctx ends it.
	open(ctx context.Context) (*opened, error)
	Close() error
}

// addrPort is an address as carriers give it; not valid if it is none of IP.
func addrPort(at net.Addr) netip.AddrPort {
	a, _ := netip.ParseAddrPort(at.String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
