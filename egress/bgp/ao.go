package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"
)

// TCP_AO_ADD_KEY and TCP_AO_INFO, with struct tcp_ao_add and struct tcp_ao_info_opt, of linux/tcp.h.
const (
	tcpAOAddKey = 38
	tcpAOInfo   = 40
	aoKeyMax    = 80

	// Bit fields, as little-endian machines lay them out.
	aoSetCurrent = 1 << 0 // sign with this key
	aoSetNext    = 1 << 1 // ask the other side to sign with this key (RNextKeyID)
	aoRequired   = 1 << 2 // take nothing unsigned, and no TCP-MD5 key
)

// AOKey is a master key tuple of TCP-AO (RFC 5925 section 3.1). It signs all TCP options, which is the default there.
type AOKey struct {
	Key       string // 1 to 80 bytes
	SendID    uint8  // KeyID of what this host sends with it: the reflector's receive ID
	ReceiveID uint8  // KeyID of what the reflector sends with it: the reflector's send ID
	Algorithm AOAlgorithm
}

func (k AOKey) ids() string { return fmt.Sprintf("send ID %d, receive ID %d", k.SendID, k.ReceiveID) }

// AOAlgorithm names how keys are derived and segments signed (RFC 5926).
type AOAlgorithm string

// The algorithms every implementation has, with 96 bits of signature.
const (
	HMACSHA1   AOAlgorithm = "hmac-sha-1-96" // the default
	AES128CMAC AOAlgorithm = "aes-128-cmac-96"
)

// AOAlgorithms are all there are, the default first.
func AOAlgorithms() []AOAlgorithm { return []AOAlgorithm{HMACSHA1, AES128CMAC} }

// CheckAOKeys looks for what RFC 5925 does not allow of the keys of one reflector.
func CheckAOKeys(keys []AOKey) error {
	for i, k := range keys {
		before := keys[:i]
		switch {
		case !slices.Contains(AOAlgorithms(), k.Algorithm):
			return fmt.Errorf("TCP-AO algorithm %q: want one of %v", k.Algorithm, AOAlgorithms())
		case slices.ContainsFunc(before, func(b AOKey) bool { return b.SendID == k.SendID }):
			return fmt.Errorf("two TCP-AO keys have the send ID %d: want another for each", k.SendID)
		case slices.ContainsFunc(before, func(b AOKey) bool { return b.ReceiveID == k.ReceiveID }):
			return fmt.Errorf("two TCP-AO keys have the receive ID %d: want another for each", k.ReceiveID)
		}
	}
	return nil
}

// HasAO reports whether this kernel has TCP-AO.
func HasAO() bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	return !errors.Is(syscall.SetsockoptString(fd, syscall.IPPROTO_TCP, tcpAOAddKey, "none"), syscall.ENOPROTOOPT) // where it is, "none" is no key
}

type aoAdd struct {
	family    uint16 // struct sockaddr_storage
	_         uint16 // port: the key is for the address
	inet      [4]byte
	inet6     [16]byte
	_         [104]byte
	algorithm [64]byte
	_         uint32 // interface, with a flag only
	set       uint32
	_         uint16
	prefix    uint8
	send      uint8
	receive   uint8
	signature uint8 // bytes
	_         uint8 // flags
	length    uint8
	key       [aoKeyMax]byte
}

// aoOptions begin as struct tcp_ao_info_opt does, whose counters follow.
type aoOptions struct {
	set      uint32
	_        uint16
	current  uint8 // send ID
	next     uint8 // receive ID
	counters [5]uint64
}

// addKey gives a socket a key for segments to and from peer. From the first one on, the kernel drops what peer sends unsigned.
func addKey(socket syscall.RawConn, peer netip.Addr, k AOKey, set uint32) error {
	a := aoAdd{family: syscall.AF_INET, prefix: uint8(peer.BitLen()), set: set, send: k.SendID, receive: k.ReceiveID, signature: 12, length: uint8(len(k.Key))}
	if peer.Is4() {
		a.inet = peer.As4()
	} else {
		a.family, a.inet6 = syscall.AF_INET6, peer.As16()
	}
	name := "hmac(sha1)"
	if k.Algorithm == AES128CMAC {
		name = "cmac(aes128)"
	}
	copy(a.algorithm[:], name)
	copy(a.key[:], k.Key)
	return setOption(socket, tcpAOAddKey, &a)
}

// protect makes the kernel sign what this socket sends to peer with the first of the keys, until peer asks for another, and drop what peer sends without a
// signature by one of them (RFC 5925).
func protect(socket syscall.RawConn, peer netip.Addr, keys []AOKey) error {
	set := uint32(aoSetCurrent | aoSetNext)
	for _, k := range keys {
		err := addKey(socket, peer, k, set)
		if errors.Is(err, syscall.ENOPROTOOPT) {
			return fmt.Errorf("set the TCP-AO key: this kernel has no TCP-AO: use Linux 6.7 or newer with CONFIG_TCP_AO (Debian's 6.12 is without, 7.2 from backports has it), or TCP-MD5: %w", err)
		}
		if err != nil {
			return fmt.Errorf("set the TCP-AO key with send ID %d, %s: %w", k.SendID, k.Algorithm, err)
		}
		set = 0
	}
	if err := setOption(socket, tcpAOInfo, &aoOptions{set: aoRequired}); err != nil {
		return fmt.Errorf("require TCP-AO: %w", err)
	}
	return nil
}

// follow asks the other side to sign with the key it has asked this host to sign with, if it does not already, so that both directions change. It returns this key.
func follow(socket syscall.RawConn, keys []AOKey) (now int, changed bool, err error) {
	var got *syscall.IPMreq // the standard library's option of 8 bytes
	if failed := socket.Control(func(fd uintptr) { got, err = syscall.GetsockoptIPMreq(int(fd), syscall.IPPROTO_TCP, tcpAOInfo) }); failed != nil || err != nil {
		return 0, false, fmt.Errorf("ask for the TCP-AO key: %w", errors.Join(failed, err))
	}
	current, next := got.Interface[2], got.Interface[3]
	now = slices.IndexFunc(keys, func(k AOKey) bool { return k.SendID == current })
	if now < 0 || keys[now].ReceiveID == next {
		return max(now, 0), false, nil
	}
	if err := setOption(socket, tcpAOInfo, &aoOptions{set: aoSetNext | aoRequired, next: keys[now].ReceiveID}); err != nil {
		return now, false, fmt.Errorf("ask for another TCP-AO key: %w", err)
	}
	return now, true, nil
}

func setOption[T any](socket syscall.RawConn, option int, value *T) error {
	text := string(unsafe.Slice((*byte)(unsafe.Pointer(value)), unsafe.Sizeof(*value)))
	var set error
	if err := socket.Control(func(fd uintptr) { set = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, option, text) }); err != nil {
		return err
	}
	return set
}

// keys of the reflector, the one to sign with first. After a change of keys it may be that the reflector takes none but the last.
func (s *session) keys() []AOKey {
	keys := s.reflector.AOKeys
	return slices.Concat(keys[s.key:], keys[:s.key])
}

func (s *session) useKey(key int) {
	s.status.Lock()
	defer s.status.Unlock()
	if n := len(s.reflector.AOKeys); n > 0 {
		s.key = key % n
	}
}

// followKey notes which key the reflector has asked for, and asks it for the same.
func (s *session) followKey(p *peer) {
	socket, ok := p.conn.(syscall.Conn)
	if !ok || len(s.reflector.AOKeys) == 0 {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return // it is closed
	}
	key, changed, err := follow(raw, s.reflector.AOKeys)
	if err != nil {
		s.log.Warn("TCP-AO keys do not change", "reason", err)
		return
	}
	s.useKey(key)
	if changed {
		s.log.Info("the reflector asked for another TCP-AO key, and is asked for it", "key", s.reflector.AOKeys[key].ids())
	}
}
