package bgp

import (
	"fmt"
	"net/netip"
	"syscall"
)

// TCP_MD5SIG and struct tcp_md5sig of linux/tcp.h.
const (
	tcpMD5Sig = 14
	md5KeyMax = 80
)

type md5Signature struct {
	family uint16 // struct sockaddr_storage
	_      uint16 // port: the key is for the address
	inet   [4]byte
	inet6  [16]byte
	_      [104]byte
	_      uint8 // flags
	_      uint8 // prefix length, with a flag only
	length uint16
	_      uint32 // interface, with a flag only
	key    [md5KeyMax]byte
}

// setPassword makes the kernel sign what this socket sends to peer, and drop what peer sends unsigned (RFC 2385).
func setPassword(socket syscall.RawConn, peer netip.Addr, password string) error {
	s := md5Signature{family: syscall.AF_INET, length: uint16(len(password))}
	if peer.Is4() {
		s.inet = peer.As4()
	} else {
		s.family, s.inet6 = syscall.AF_INET6, peer.As16()
	}
	copy(s.key[:], password)
	if err := setOption(socket, tcpMD5Sig, &s); err != nil {
		return fmt.Errorf("set the TCP-MD5 password (does this kernel have CONFIG_TCP_MD5SIG?): %w", err)
	}
	return nil
}
