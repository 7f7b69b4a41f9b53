package traffic

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes one goroutine at exact times. The runtime's own timers end up in epoll_wait(2), which counts in
// milliseconds, so they are up to 1 ms late: as much as the error allowed for a burst.
type alarm struct {
	file   *os.File
	fd     int // of file; os.File.Fd would make it blocking
	ctx    context.Context
	unhook func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	unhook := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	return &alarm{file: f, fd: fd, ctx: ctx, unhook: unhook}, nil
}

func (a *alarm) close() {
	a.unhook()
	a.file.Close()
}

// until sleeps until t. It returns at once if t has passed, and with an error when the context is done.
func (a *alarm) until(t time.Time) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	left := time.Until(t)
	if left <= 0 {
		return nil
	}
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	if err := unix.TimerfdSettime(a.fd, 0, spec, nil); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	var expirations [8]byte
	if _, err := a.file.Read(expirations[:]); err != nil {
		return fmt.Errorf("wait for timer: %w", err)
	}
	return nil
}
