package daemon

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
)

// slowPage is memory that makes who reads it wait (userfaultfd(2)) until it is there.
func slowPage(h *host) (page []byte, arrive func()) {
	h.Helper()
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	h.must(err)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		h.Fatal(errno)
	}
	h.Cleanup(func() { _ = unix.Close(int(fd)) })
	ask := func(request uintptr, words [4]uint64) {
		h.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&words))); errno != 0 {
			h.Fatal(errno)
		}
	}
	// include/uapi/linux/userfaultfd.h: UFFDIO_API, UFFDIO_REGISTER for pages that are missing, UFFDIO_ZEROPAGE
	at, size := uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(len(page))
	ask(0xc018aa3f, [4]uint64{0xaa})
	ask(0xc020aa00, [4]uint64{at, size, 1})
	return page, func() { ask(0xc020aa04, [4]uint64{at, size}) }
}

// A burst begins when its application writes, for connections that plait controls as for those they are compared with: what keeps the first packet back, here memory that
// must be fetched first, is in the latency of both.
func TestBurstsBeginWhenWritten(t *testing.T) {
	rung.Netns(t)
	mayTrace(t)
	h := newHost(t)
	d := h.inside(takeAll, new(bytes.Buffer))
	s := &switching{host: h, kernel: d.kernel, pair: h.connect(0, "")}
	go func() { _, _ = io.Copy(io.Discard, s.client) }()
	s.must(send(s.server, 0, 1000))
	s.acknowledged(s.server)
	page, arrive := slowPage(h)
	wrote := make(chan error)
	before := uint64(monotonicNs()) / 1000
	go func() { wrote <- writeFrom(s.server, page) }()
	time.Sleep(50 * time.Millisecond)
	begun := s.state().get("plait_sock", "burst_start_us")
	arrive()
	s.must(<-wrote)
	if now := uint64(monotonicNs()) / 1000; begun < before || begun > now {
		t.Errorf("it was written at %d us, and begins at %d us", before, begun)
	}
}

// writeFrom writes so that the kernel reads the memory itself, with a connection locked.
func writeFrom(c *net.TCPConn, b []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), b) }); controlErr != nil {
		return controlErr
	}
	return err
}
