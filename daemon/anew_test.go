package daemon

import (
	"io"
	"net"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
)

// A socket that has had another connection before (connect() to AF_UNSPEC) is under the rules for the one it has now, and what the other one's path was like is forgotten.
func TestSocketConnectsAnew(t *testing.T) {
	h := newHost(t)
	p := h.up(takeAll + "\n  rules:\n    - {prefix: 127.0.0.2/32, mode: off}")
	fd := -1
	defer func() { unix.Close(fd) }()
	connects := func(address string) (server net.Conn, uses string) {
		h.in(func() error {
			l, err := net.Listen("tcp4", address+":0")
			if err != nil {
				return err
			}
			defer l.Close()
			if fd < 0 {
				if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
					return err
				}
			}
			to := l.Addr().(*net.TCPAddr).AddrPort()
			if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
				return err
			}
			server, err = l.Accept()
			return err
		})
		h.Cleanup(func() { server.Close() })
		for range 3 {
			_, err := unix.Write(fd, make([]byte, 1000))
			h.must(err)
			_, err = io.ReadFull(server, make([]byte, 1000))
			h.must(err)
		}
		uses, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		h.must(err)
		return server, uses
	}
	disconnects := func(server net.Conn) {
		unspec := [16]byte{unix.AF_UNSPEC}
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), uintptr(len(unspec)))
		if errno != 0 {
			t.Fatal(errno)
		}
		server.Close()
	}
	for n := range 2 {
		server, uses := connects("127.0.0.1")
		if uses != bpf.Name {
			t.Fatalf("connection %d uses %s, want %s", n, uses, bpf.Name)
		}
		disconnects(server)
	}
	if _, uses := connects("127.0.0.2"); uses != systemDefault {
		t.Errorf("a connection that plait is to leave alone uses %s, by one that the socket had before; want %s", uses, systemDefault)
	}
	_, err := p.Stop(t.Context())
	h.must(err)
}
