package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orKill is for a plait whose socket somebody has removed: no command reaches it, and it ends in good order by SIGTERM.
const orKill = "; if nothing answers, as its control socket was removed, end it by its process: pgrep -af 'plait up', kill PROCESS"

// errLocked is why a lock cannot be had.
var errLocked = errors.New("another plait is up, or comes up or goes down at this moment; see plait status, and stop it with plait down" + orKill)

const lockSuffix = ".lock"

// orphanPatience is how long plait down waits for the locks of a plait that was killed: its helper has them until it has ended, which is soon.
const orphanPatience = 5 * time.Second

// Others is why nothing is taken back: another plait, with another control socket, has it and is up.
type Others struct{ error }

// AsRoot begins the advice about an error, if root would not have it.
func AsRoot(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run this as root, or "
	}
	return ""
}

// stay marks a lock as that of a daemon, which goes when it is told to: nobody needs to wait for it. The mark is a lock of the process (fcntl), so that its helper, which
// inherits the other one, does not have it.
func stay(f *os.File) {
	_ = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) // without it others wait in vain
}

// stays says whether another process has marked the lock so.
func stays(f *os.File) bool {
	mark := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &mark) == nil && mark.Type != unix.F_UNLCK
}

// lock keeps others away from a control socket and from what plait has put into the kernel, until it is closed: between the question whether somebody
// answers and the answer a second one could come up. The file beside the socket stays: whoever removed it would take it from under one who has just
// opened it. Who has the lock is given so long to end, unless it stays.
func lock(path string, patience time.Duration) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the control socket: %w; %sname another path as control in the configuration", err, AsRoot(err))
	}
	f, err := os.OpenFile(path+lockSuffix, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the control socket: %w; %sname another path as control in the configuration", err, AsRoot(err))
	}
	last := time.Now().Add(patience)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(last) || stays(f) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("lock %s: %w", path, errLocked)
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// exitsLock is what lockExits locks.
func exitsLock() (path string, err error) {
	namespace, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(DefaultControl), fmt.Sprint("exits-", namespace.Sys().(*syscall.Stat_t).Ino)), nil
}

// exitsLocked says whether somebody has that lock, and makes no file to find out.
func exitsLocked() bool {
	path, err := exitsLock()
	if err != nil {
		return false
	}
	f, err := os.Open(path + lockSuffix)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lockExits keeps other plaits from the BGP exits of this network namespace, whatever their control sockets are: they would take each other's routes, rules and
// addresses for their own.
func lockExits(patience time.Duration) (*os.File, error) {
	path, err := exitsLock()
	if err != nil {
		return nil, fmt.Errorf("lock the BGP exits of this network namespace: %w", err)
	}
	held, err := lock(path, patience)
	if errors.Is(err, errLocked) {
		err = Others{errors.New("another plait has the BGP exits of this network namespace, with another control socket: end that one with plait down --control PATH")}
	}
	return held, err
}

// lockCongestion keeps plait down from the congestion control of a plait with another control socket, which kernels before 6.4 let anybody remove. Where the lock
// cannot be made, as in a container, there is none.
func lockCongestion(patience time.Duration) ([]*os.File, error) {
	held, err := lock(filepath.Join(filepath.Dir(DefaultControl), "congestion"), patience)
	switch {
	case errors.Is(err, errLocked):
		return nil, Others{errTaken(true)}
	case err != nil:
		return nil, nil
	}
	return []*os.File{held}, nil
}

func closeAll(held []*os.File) (err error) {
	for _, f := range held {
		err = errors.Join(err, f.Close())
	}
	return err
}

// locks are those of a daemon with this configuration.
func (c Config) locks() (held []*os.File, err error) {
	control, err := lock(c.Control, 0)
	if err != nil {
		return nil, err
	}
	held = append(held, control)
	if c.takes() {
		congestion, err := lockCongestion(0)
		if err != nil {
			return nil, errors.Join(err, control.Close())
		}
		held = append(held, congestion...)
	}
	if c.Egress.there() {
		exits, err := lockExits(0)
		if err != nil {
			return nil, errors.Join(err, closeAll(held))
		}
		held = append(held, exits)
	}
	for _, f := range held[1:] { // plait down with this control socket ends this plait, and waits
		stay(f)
	}
	return held, nil
}
