package stripe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Carrier is what paths are made of. Both ends of a connection need the same one.
type Carrier string

// The carriers.
const (
	TCP  Carrier = "tcp"  // TLS 1.3 over TCP, the default: the kernel's own, passes nearly every network
	QUIC Carrier = "quic" // QUIC (RFC 9000) over UDP
	SCTP Carrier = "sctp" // TLS 1.3 over SCTP (RFC 9260), if the kernel has it: between hosts without NAT between them
)

var carriers = map[Carrier]carrier{"": tcpCarrier{}, TCP: tcpCarrier{}, QUIC: quicCarrier{}, SCTP: sctpCarrier{}}

// Validate reports a carrier that does not exist.
func (c Carrier) Validate() error {
	if carriers[c] == nil {
		return fmt.Errorf("carrier %q: use %s, %s or %s", string(c), TCP, QUIC, SCTP)
	}
	return nil
}

// Network is what firewalls call the packets of a carrier.
func (c Carrier) Network() string {
	switch c {
	case QUIC:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return "TCP"
}

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
	RemoteAddr() net.Addr
	Close() error
}

// addrPort is an address as carriers give it; not valid if it is none of IP.
func addrPort(at net.Addr) netip.AddrPort {
	a, _ := netip.ParseAddrPort(at.String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// pulse dates the last change of a count, as well as it is looked at.
type pulse struct {
	mu    sync.Mutex
	count uint64
	at    time.Time
}

// since is how long ago the count changed.
func (p *pulse) since(count uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if count != p.count {
		p.count, p.at = count, now
	}
	return now.Sub(p.at)
}
