package measure

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/{inet_diag.h,mptcp.h} and include/net/tcp_states.h that x/sys/unix does not have.
const (
	sizeofInetDiagReqV2 = 56
	sizeofInetDiagMsg   = 72

	inetDiagInfo    = 2
	inetDiagULPInfo = 19
	inetULPMPTCP    = 3

	mptcpSubflowTokenLoc = 2
	mptcpSubflowFlags    = 8
	mptcpFlagMCapRem     = 1 << 0 // the peer is MPTCP capable: the connection's first subflow
	mptcpFlagJoinRem     = 1 << 2 // the peer joined, or accepted our join

	tcpEstablished = 1
	// All states in which a socket can have data in flight: neither listening, nor TIME_WAIT, nor a request socket.
	tcpStatesWithInfo = 1<<1 | 1<<2 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11
)

// diag is what one inet_diag message says of a TCP socket.
type diag struct {
	family, state         uint8
	counted               bool // has what follows cookie: the rest of a socket that waits in FIN_WAIT_2 or TIME_WAIT has nothing (inet_twsk_diag_fill, net/ipv4/inet_diag.c)
	localPort, remotePort uint16
	local, remote         [16]byte
	cookie                uint64
	cwnd, ssthresh        uint32 // packets
	unacked, sacked       uint32 // packets
	lost, retrans         uint32 // packets
	rttUS                 uint32
	bytesAcked            uint64
	resent, spurious      uint32 // segments
	subflow               bool   // of an MPTCP connection, which token tells
	token                 uint32
}

// diagRequest asks for all TCP sockets of a family (struct inet_diag_req_v2).
func diagRequest(family uint8) []byte {
	data := make([]byte, sizeofInetDiagReqV2)
	data[0], data[1], data[2] = family, unix.IPPROTO_TCP, 1<<(inetDiagInfo-1)
	binary.NativeEndian.PutUint32(data[4:], tcpStatesWithInfo)
	return request(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, data)
}

// diagPorts is the local and the remote port, which decide whether the rest is worth reading.
func diagPorts(msg []byte) (local, remote uint16, err error) {
	if len(msg) < sizeofInetDiagMsg {
		return 0, 0, fmt.Errorf("read inet_diag message: %d bytes, want %d", len(msg), sizeofInetDiagMsg)
	}
	return binary.BigEndian.Uint16(msg[4:]), binary.BigEndian.Uint16(msg[6:]), nil
}

// parseDiag reads a message that diagPorts accepts (struct inet_diag_msg and attributes).
func parseDiag(msg []byte) (d diag, err error) {
	d.family, d.state = msg[0], msg[1]
	d.localPort, d.remotePort, err = diagPorts(msg)
	d.local, d.remote = [16]byte(msg[8:24]), [16]byte(msg[24:40])
	d.cookie = binary.NativeEndian.Uint64(msg[44:])
	for kind, value := range attributes(msg[sizeofInetDiagMsg:]) {
		switch kind {
		case inetDiagInfo:
			d.counted, err = true, d.parseInfo(value)
		case inetDiagULPInfo:
			for kind, value := range attributes(value) {
				if kind == inetULPMPTCP {
					d.parseSubflow(value)
				}
			}
		}
	}
	return d, err
}

// parseInfo reads a struct tcp_info, which only ever grows at its end.
func (d *diag) parseInfo(b []byte) error {
	var info unix.TCPInfo
	if need := unsafe.Offsetof(info.Reord_seen); uintptr(len(b)) < need {
		return fmt.Errorf("read tcp_info: %d bytes, want %d", len(b), need)
	}
	u32 := func(offset uintptr) uint32 { return binary.NativeEndian.Uint32(b[offset:]) }
	d.unacked, d.sacked = u32(unsafe.Offsetof(info.Unacked)), u32(unsafe.Offsetof(info.Sacked))
	d.lost, d.retrans = u32(unsafe.Offsetof(info.Lost)), u32(unsafe.Offsetof(info.Retrans))
	d.rttUS = u32(unsafe.Offsetof(info.Rtt))
	d.ssthresh, d.cwnd = u32(unsafe.Offsetof(info.Snd_ssthresh)), u32(unsafe.Offsetof(info.Snd_cwnd))
	d.resent, d.spurious = u32(unsafe.Offsetof(info.Total_retrans)), u32(unsafe.Offsetof(info.Dsack_dups))
	d.bytesAcked = binary.NativeEndian.Uint64(b[unsafe.Offsetof(info.Bytes_acked):])
	return nil
}

// parseSubflow reads the attributes of net/mptcp/diag.c. A connection that fell back to TCP has neither flag.
func (d *diag) parseSubflow(b []byte) {
	for kind, value := range attributes(b) {
		if len(value) < 4 {
			continue
		}
		switch v := binary.NativeEndian.Uint32(value); kind {
		case mptcpSubflowTokenLoc:
			d.token = v
		case mptcpSubflowFlags:
			d.subflow = v&(mptcpFlagMCapRem|mptcpFlagJoinRem) != 0
		}
	}
}

// inflight is the packets on their way: sent, neither acknowledged nor lost, retransmissions included
// (tcp_packets_in_flight in include/net/tcp.h).
func (d *diag) inflight() float64 {
	return float64(int64(d.unacked) - int64(d.sacked) - int64(d.lost) + int64(d.retrans))
}

// ends are the local and the remote address and port.
func (d *diag) ends() (local, remote netip.AddrPort) {
	address := func(b [16]byte) netip.Addr {
		if d.family == unix.AF_INET {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16(b).Unmap()
	}
	return netip.AddrPortFrom(address(d.local), d.localPort), netip.AddrPortFrom(address(d.remote), d.remotePort)
}
