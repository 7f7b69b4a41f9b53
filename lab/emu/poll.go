package emu

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The emulator's thread calls the kernel past the Go scheduler. For a call that it knows of, the scheduler lends the
// thread's processor to others and fetches it back, which costs several times what carrying a packet does.

func rawRead(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

func rawWrite(fd int, b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return errno
}

// longWait is when the scheduler is told after all: as long as it believes the thread to run it looks after it every
// 10 ms, and a guest that is idle should be.
const longWait = 20 * time.Millisecond

// poll waits until a file is ready or the time is over; a negative one never is. It may return early.
func poll(files []unix.PollFd, timeout time.Duration) error {
	first := unix.NsecToTimespec(int64(longWait))
	if timeout >= 0 {
		first = unix.NsecToTimespec(int64(min(timeout, longWait)))
	}
	ready, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&files[0])), uintptr(len(files)),
		uintptr(unsafe.Pointer(&first)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return errno
	}
	if errno == unix.EINTR || ready > 0 || timeout >= 0 && timeout <= longWait {
		return nil
	}
	var rest *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout - longWait))
		rest = &t
	}
	if _, err := unix.Ppoll(files, rest, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}
