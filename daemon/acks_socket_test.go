package daemon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// established is a TCP connection between two addresses of the namespace; it returns what the server's socket waits to see acknowledged next, and the
// client's clock.
func (h *host) established(t *testing.T, client, server netip.AddrPort) (una, clock uint32) {
	t.Helper()
	h.ip("-n " + h.ns + " link set lo up")
	for _, a := range []netip.Addr{client.Addr(), server.Addr()} {
		h.ip(fmt.Sprintf("-n %s addr replace %v/%d dev lo", h.ns, a, a.BitLen()))
	}
	h.in(func() error {
		l, err := net.Listen("tcp", server.String())
		if err != nil {
			return err
		}
		defer l.Close()
		near, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(client)}).Dial("tcp", server.String())
		if err != nil {
			return err
		}
		far, err := l.Accept()
		if err != nil {
			return err
		}
		for _, c := range []net.Conn{near, far} {
			h.must(c.(*net.TCPConn).SetLinger(0)) // the next one has the same ports
			t.Cleanup(func() { c.Close() })
		}
		onSocket(h, far, func(fd int) error {
			const sendQueue = 2 // include/uapi/linux/tcp.h
			n := 0
			for _, err := range []error{unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, sendQueue)} {
				h.must(err)
			}
			n, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			una = uint32(n)
			return err
		})
		onSocket(h, near, func(fd int) error {
			n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_TIMESTAMP)
			clock = uint32(n)
			return err
		})
		return nil
	})
	return una, clock
}

func onSocket(h *host, c net.Conn, do func(fd int) error) {
	h.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	h.must(err)
	h.must(raw.Control(func(fd uintptr) { err = do(int(fd)) }))
	h.must(err)
}

// protocol is the number that a packet of the address's family has in another.
func protocol(a netip.Addr) byte {
	if a.Is4() {
		return 4
	}
	return 41
}

// withOption is a packet of IPv4 with a source route (RFC 791).
func withOption(packet []byte) []byte {
	out := append(bytes.Clone(packet[:20]), 131, 7, 4, 10, 0, 0, 99, 0)
	out[0] = 0x47
	binary.BigEndian.PutUint16(out[2:], uint16(len(packet)+8))
	return append(out, packet[20:]...)
}

// Copies that come in where the flow's socket is not to be found, for it is bound to another interface, do not make TCP reset the flow.
func TestACKCopiesOfBoundSocket(t *testing.T) {
	a := newSlowPair(t, 20*time.Millisecond, 0, nil)
	h := a.host
	onSocket(h, a.served, func(fd int) error {
		return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "slow")
	})
	data := make([]byte, 1<<18)
	go func() {
		_, _ = a.served.Write(data)
		a.served.Close()
	}()
	if got, err := io.ReadAll(a.conn); err != nil || len(got) != len(data) {
		t.Errorf("%d bytes of %d arrived, %v", len(got), len(data), err)
	}
	if r, l := a.counted(); r.Copies == 0 || l.Used+l.Late != 0 {
		t.Errorf("%d copies were sent, %+v; want some, and none for the socket", r.Copies, l)
	}
}

// The last ACK of all closes the sender's socket when its copy comes: its twin, which then comes to none, is not answered with a reset.
func TestACKTwinOfTheEnd(t *testing.T) {
	a := newSlowPair(t, 20*time.Millisecond, 60*time.Millisecond, nil)
	before := a.far.counter("TcpOutRsts")
	go func() { _, _ = a.served.Write(make([]byte, 50_000)) }()
	_, err := io.ReadFull(a.conn, make([]byte, 50_000))
	a.must(err)
	a.must(a.conn.(*net.TCPConn).CloseWrite())
	_, err = io.ReadAll(a.served)
	a.must(err)
	a.served.Close()
	_, err = io.ReadAll(a.conn) // its FIN
	a.must(err)
	time.Sleep(200 * time.Millisecond) // until the last copy is there, and mostly its twin
	var l bpf.AckLead
	a.eventually(10*time.Second, "something was copied, and all twins are there", func() bool {
		_, l = a.counted()
		return l.Copies > 0 && uint64(l.Natives) == l.Copies
	})
	if n := a.far.counter("TcpOutRsts") - before; n != 0 {
		t.Errorf("%d resets; %+v", n, l)
	}
}
