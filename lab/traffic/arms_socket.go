package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// Options of SCTP's sockets (include/uapi/linux/sctp.h).
const (
	sctpSndRcv      = 1 // type of ancillary data: struct sctp_sndrcvinfo
	sctpAddrOver    = 2 // of its flags
	sctpPeerParams  = 9
	sctpPeerInfo    = 15
	sctpAssocIDs    = 29
	sctpPeerAddrs   = 108
	sctpStorage     = 128 // struct sockaddr_storage
	sctpPeerInfoLen = 4 + sctpStorage + 5*4
	sctpUnconfirmed = 3 // state of a path on which no heartbeat has been answered

	sctpPeerParamsLen   = 156 // struct sctp_paddrparams, packed
	sctpPeerParamsFlags = 4 + sctpStorage + 14
	sctpHeartbeatNow    = 4 // SPP_HB_DEMAND of these flags
)

// armsEnd is one end's socket, of the one-to-many style.
type armsEnd struct {
	*os.File
	raw syscall.RawConn
	fd  int // valid until Close
}

// armsSocket makes a socket, with which connecting blocks.
func armsSocket(ns string, family netip.Addr) (fd int, err error) {
	domain := unix.AF_INET6
	if family.Is4() {
		domain = unix.AF_INET
	}
	err = netns.Do(ns, func() error {
		fd, err = unix.Socket(domain, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open SCTP socket in %s: %w", ns, err)
	}
	// Data of a measurement that is still waiting at its end is of no use: it goes with an ABORT.
	err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, sctpNoDelay, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("options of an SCTP socket in %s: %w", ns, err)
	}
	return fd, nil
}

// armsPoll makes a file of a socket that is polled.
func armsPoll(fd int) (*armsEnd, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp")
	raw, err := f.SyscallConn()
	return &armsEnd{f, raw, fd}, err
}

// armsPair makes an association between the two ends, at a port of the sender (0: any), which the receiver opens from an address, or from
// all of its if that is not valid.
func (r *run) armsPair(port uint16, to netip.Addr) (sender, receiver *armsEnd, err error) {
	near, err := armsSocket(r.ends.FromNS, r.ends.From)
	if err != nil {
		return nil, nil, err
	}
	if sender, err = armsPoll(near); err != nil {
		return nil, nil, err
	}
	if err = unix.Bind(near, sockaddr(r.ends.From, port)); err == nil {
		err = unix.Listen(near, 1)
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(near)
	}
	far := -1
	if err == nil {
		far, err = armsSocket(r.ends.ToNS, r.ends.From)
	}
	if err == nil && to.IsValid() {
		err = unix.Bind(far, sockaddr(to, 0))
	}
	if err == nil {
		err = unix.Connect(far, at)
	}
	if err != nil {
		sender.Close()
		_ = unix.Close(far)
		return nil, nil, fmt.Errorf("connect from %s to %s port %d: %w", r.ends.ToNS, r.ends.From, port, err)
	}
	if receiver, err = armsPoll(far); err != nil {
		sender.Close()
	}
	return sender, receiver, err
}

// getsockopt reads an option into b and returns how much of it there is.
func (e *armsEnd) getsockopt(option int, b []byte) (int, error) {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(e.fd), unix.IPPROTO_SCTP, uintptr(option), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("getsockopt %d of SCTP: %w", option, errno)
	}
	return int(n), nil
}

// association is the socket's only one.
func (e *armsEnd) association() (uint32, error) {
	b := make([]byte, 4+4*16)
	n, err := e.getsockopt(sctpAssocIDs, b)
	if err == nil && (n < 8 || binary.NativeEndian.Uint32(b) != 1) {
		err = fmt.Errorf("sender has %d associations, not one", binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint32(b[4:]), err
}

// peers are the other end's addresses, of one family, as it told them (sctp_getpaddrs(3)).
func (e *armsEnd) peers(association uint32, family netip.Addr) ([]netip.AddrPort, error) {
	b := make([]byte, 1024)
	binary.NativeEndian.PutUint32(b, association)
	if _, err := e.getsockopt(sctpPeerAddrs, b); err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	rest := b[8:]
	for range binary.NativeEndian.Uint32(b[4:]) {
		port := binary.BigEndian.Uint16(rest[2:])
		switch binary.NativeEndian.Uint16(rest) {
		case unix.AF_INET:
			if family.Is4() {
				out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[4:8])), port))
			}
			rest = rest[unix.SizeofSockaddrInet4:]
		case unix.AF_INET6:
			if family.Is6() {
				out = append(out, netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest[8:24])), port))
			}
			rest = rest[unix.SizeofSockaddrInet6:]
		}
	}
	return out, nil
}

// peerOption is the beginning of an option about an address: association and struct sockaddr_storage.
func peerOption(length int, association uint32, to netip.AddrPort) []byte {
	b := make([]byte, length)
	binary.NativeEndian.PutUint32(b, association)
	at := b[4:]
	if to.Addr().Is4() {
		binary.NativeEndian.PutUint16(at, unix.AF_INET)
		copy(at[4:], to.Addr().AsSlice())
	} else {
		binary.NativeEndian.PutUint16(at, unix.AF_INET6)
		copy(at[8:], to.Addr().AsSlice())
	}
	binary.BigEndian.PutUint16(at[2:], to.Port())
	return b
}

// path is what the kernel knows of the path to an address: its state (enum sctp_spinfo_state) and the congestion window, in bytes.
func (e *armsEnd) path(association uint32, to netip.AddrPort) (state uint32, cwnd int, err error) {
	b := peerOption(sctpPeerInfoLen, association, to)
	_, err = e.getsockopt(sctpPeerInfo, b)
	info := b[4+sctpStorage:]
	return binary.NativeEndian.Uint32(info), int(binary.NativeEndian.Uint32(info[4:])), err
}

// heartbeat sends one to an address at once.
func (e *armsEnd) heartbeat(association uint32, to netip.AddrPort) error {
	b := peerOption(sctpPeerParamsLen, association, to)
	binary.NativeEndian.PutUint32(b[sctpPeerParamsFlags:], sctpHeartbeatNow)
	return os.NewSyscallError("setsockopt", unix.SetsockoptString(e.fd, unix.IPPROTO_SCTP, sctpPeerParams, string(b)))
}

// addrOver is ancillary data that has a message go to the address it is sent to.
func addrOver(association uint32) []byte {
	const info = 32
	b := make([]byte, unix.CmsgSpace(info))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_SCTP, sctpSndRcv
	h.SetLen(unix.CmsgLen(info))
	data := b[unix.CmsgLen(0):]
	binary.NativeEndian.PutUint16(data[4:], sctpAddrOver)
	binary.NativeEndian.PutUint32(data[28:], association)
	return b
}

// send sends a message of n bytes, when there is room.
func (e *armsEnd) send(n int, to netip.AddrPort, over []byte) (err error) {
	waited := e.raw.Write(func(fd uintptr) bool {
		_, err = unix.SendmsgN(int(fd), contentAt(0, int64(n)), over, sockaddr(to.Addr(), to.Port()), unix.MSG_NOSIGNAL)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	return errors.Join(waited, os.NewSyscallError("sendmsg", err))
}

// Read reads a message, or a part of one.
func (e *armsEnd) Read(b []byte) (n int, err error) {
	waited := e.raw.Read(func(fd uintptr) (ready bool) {
		n, ready, err = call(unix.SYS_READ, fd, b)
		return ready
	})
	switch {
	case waited != nil:
		return 0, waited
	case err == nil && n == 0:
		err = io.EOF
	}
	return n, err
}

// until cuts what waits when ctx ends.
func (e *armsEnd) until(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = e.SetDeadline(time.Unix(1, 0)) })
}
