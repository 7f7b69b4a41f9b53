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

	mu sync.Mutex
	at map[netip.AddrPort]time.Time // when last, by the peer's address
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
	return &refusals{UDPConn: udp, batch: ipv4.NewPacketConn(udp), at: map[netip.AddrPort]time.Time{}}, err
}

// since reports whether a peer's port was refused in so long a time until now.
func (r *refusals) since(peer netip.AddrPort, long time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.at[peer]
	return known && time.Since(at) < long
}

// ReadBatch is what quic-go reads with. No error of the network is one of reading.
func (r *refusals) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for {
		n, err := r.batch.ReadBatch(ms, flags)
		if err == nil || !r.reported(err) {
			return n, err
		}
	}
}

// WriteMsgUDP sends, again if the error is of an earlier packet. One that comes a third time is this packet's.
func (r *refusals) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	for range 3 {
		n, oobn, err = r.UDPConn.WriteMsgUDP(b, oob, to)
		if err == nil || !r.reported(err) {
			break
		}
	}
	return n, oobn, err
}

// reported reports whether an error may be the network's about a packet sent earlier, and takes in what there is of these.
func (r *refusals) reported(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) || !networkErrors[errno] {
		return false
	}
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
			if refused(control[:size]) {
				r.note(to)
			}
		}
	})
	return true
}

// refused reports whether the kernel's note is of a packet whose port nobody had: struct sock_extended_err begins with the error and where it came from.
func refused(control []byte) bool {
	notes, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return false
	}
	for _, n := range notes {
		h := n.Header
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR {
			icmp := len(n.Data) > 4 && (n.Data[4] == unix.SO_EE_ORIGIN_ICMP || n.Data[4] == unix.SO_EE_ORIGIN_ICMP6)
			return icmp && binary.NativeEndian.Uint32(n.Data) == uint32(unix.ECONNREFUSED)
		}
	}
	return false
}

// note keeps when, and forgets all when there are too many.
func (r *refusals) note(to unix.Sockaddr) {
	var peer netip.AddrPort
	switch to := to.(type) {
	case *unix.SockaddrInet4:
		peer = netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port))
	case *unix.SockaddrInet6:
		peer = netip.AddrPortFrom(netip.AddrFrom16(to.Addr).Unmap(), uint16(to.Port))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) >= maxRefused {
		clear(r.at)
	}
	r.at[peer] = time.Now()
}
