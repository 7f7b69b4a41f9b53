package stripe

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// maxRefused bounds what is remembered: anybody can send ICMP.
const maxRefused = 1024

// refusals is a listener's UDP socket that hears from its peers' hosts that nobody is at a port any more. The kernel tells a socket with many peers only if asked to
// (IP_RECVERR in ip(7)), and then the next call fails, whichever peer it is for: such errors are kept from the caller. What they say anybody on the way, or who guesses
// a port, can forge: it is worth something only if the peer falls silent, too.
type refusals struct {
	*net.UDPConn
	batch *ipv4.PacketConn

	mu   sync.Mutex
	when map[netip.AddrPort]refusal // by the peer's address
}

// refusal is when a peer's port was refused for the first and for the last time, with no long silence between.
type refusal struct{ first, last time.Time }

// note takes in another one, which has nothing to do with what is longer ago than pause.
func (r *refusal) note(pause time.Duration) {
	now := time.Now()
	if now.Sub(r.last) > pause {
		r.first = now
	}
	r.last = now
}

// networkErrors are what ICMP says, as errors (icmp_err_convert in net/ipv4/icmp.c, icmpv6_err_convert() in net/ipv6/icmp.c).
var networkErrors = map[unix.Errno]bool{unix.ECONNREFUSED: true, unix.EHOSTUNREACH: true, unix.ENETUNREACH: true, unix.EHOSTDOWN: true, unix.ENONET: true,
	unix.EACCES: true, unix.EPROTO: true, unix.EMSGSIZE: true, unix.ENOPROTOOPT: true, unix.EOPNOTSUPP: true}

func hearRefusals(udp *net.UDPConn) (*refusals, error) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, err
	}
	var err4, err6 error
	err = raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	})
	if err == nil && err6 != nil { // a socket for IPv4 has only its own
		err = err4
	}
	return &refusals{UDPConn: udp, batch: ipv4.NewPacketConn(udp), when: map[netip.AddrPort]refusal{}}, err
}

// died reports whether a peer that was silent for quicIdle has died. One that lives and hears nothing closes its socket after quicIdle, too, and is refused from then on: for
// quicAlive at most, until the listener's time is over as well. Who died is refused from the beginning.
func (r *refusals) died(peer netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.when[netip.AddrPortFrom(peer.Addr().WithZone(""), peer.Port())]
	return known && time.Since(was.last) < quicIdle && time.Since(was.first) > quicIdle/2
}

// ReadBatch is what quic-go reads with. No error of the network is one of reading.
func (r *refusals) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for {
		n, err := r.batch.ReadBatch(ms, flags)
		if err == nil || !isNetworkError(err) {
			return n, err
		}
		r.hear()
	}
}

// WriteMsgUDP sends, again if the error is of an earlier packet: quic-go gives a connection up whose packet cannot be sent. One that comes a third time is this packet's, unless
// there was news from the network meanwhile: then the packet is lost, as it is when this host's own queue is full, of which the kernel tells with IP_RECVERR only.
func (r *refusals) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	news := false
	for range 3 {
		n, oobn, err = r.UDPConn.WriteMsgUDP(b, oob, to)
		if err == nil || !isNetworkError(err) {
			break
		}
		news = r.hear() || news
	}
	if errors.Is(err, unix.ENOBUFS) || news && err != nil && isNetworkError(err) && !errors.Is(err, unix.EMSGSIZE) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

func isNetworkError(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno) && networkErrors[errno]
}

// hear takes in what the kernel has to tell of packets sent earlier, and reports whether there was anything.
func (r *refusals) hear() (news bool) {
	raw, err := r.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // a socket that was closed has no more
		name, control := make([]byte, 1), make([]byte, 256)
		for {
			_, size, _, to, err := unix.Recvmsg(int(fd), name, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			news = true
			if peer := at(to); peer.IsValid() && refusedBy(control[:size]) == peer.Addr() {
				r.note(peer)
			}
		}
	})
	return news
}

// refusedBy is the host that says, in the kernel's note, that nobody has the port: struct sock_extended_err, and the host's address behind it. A firewall on the way knows
// nothing of the peer's process. Not valid if it says something else.
func refusedBy(control []byte) netip.Addr {
	const size = 16 // of struct sock_extended_err, which begins with the error and where that came from
	notes, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}
	}
	for _, n := range notes {
		h, d := n.Header, n.Data
		if !(h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR) || len(d) < size+2 {
			continue
		}
		if icmp := d[4] == unix.SO_EE_ORIGIN_ICMP || d[4] == unix.SO_EE_ORIGIN_ICMP6; !icmp || binary.NativeEndian.Uint32(d) != uint32(unix.ECONNREFUSED) {
			continue
		}
		switch host := d[size:]; { // struct sockaddr_in, sockaddr_in6
		case binary.NativeEndian.Uint16(host) == unix.AF_INET && len(host) >= 8:
			return netip.AddrFrom4([4]byte(host[4:8]))
		case binary.NativeEndian.Uint16(host) == unix.AF_INET6 && len(host) >= 24:
			return netip.AddrFrom16([16]byte(host[8:24])).Unmap()
		}
	}
	return netip.Addr{}
}

// at is a socket's address, without a zone.
func at(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// note keeps when, and forgets all when there are too many.
func (r *refusals) note(peer netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.when) >= maxRefused {
		clear(r.when)
	}
	was := r.when[peer]
	was.note(quicIdle)
	r.when[peer] = was
}
