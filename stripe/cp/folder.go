package cp

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// folder is an open directory of the destination. Its methods take the name of something in it, without a slash, and follow no link: so they stay
// in it, as [os.Root] would, whatever is changed meanwhile. os.Root looks at each name once more, which for small files is a good part of the work.
type folder struct {
	place // of what is in it; the name ends with a slash, if it has one
	dir   *os.File
	users atomic.Int32
}

// of is where something in it is.
func (f *folder) of(name string) place { return place{f.root, f.top, f.name + name} }

// leave says that somebody needs the folder no more.
func (f *folder) leave() {
	if f.users.Add(-1) == 0 {
		f.dir.Close()
	}
}

// enter says that somebody else needs the folder, too.
func (f *folder) enter() *folder {
	f.users.Add(1)
	return f
}

func (f *folder) fd() int { return int(f.dir.Fd()) }

// open opens a file.
func (f *folder) open(name string, flags int) (file *os.File, err error) {
	err = call("open", name, func() error {
		fd, err := unix.Openat(f.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			file = os.NewFile(uintptr(fd), name)
		}
		return err
	})
	return file, err
}

// stat says what is there by a name.
func (f *folder) stat(name string) (s unix.Stat_t, err error) {
	err = call("stat", name, func() error { return unix.Fstatat(f.fd(), name, &s, unix.AT_SYMLINK_NOFOLLOW) })
	return s, err
}

// setTime sets the time of change.
func (f *folder) setTime(name string, at moment) error {
	return setTime(f.fd(), name, at, unix.AT_SYMLINK_NOFOLLOW)
}

// setTime sets it as utimensat(2) does. AT_EMPTY_PATH needs Linux 5.8.
func setTime(fd int, name string, at moment, flags int) error {
	changed, err := unix.TimeToTimespec(at.time())
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, changed}
	return call("set the time", name, func() error { return unix.UtimesNanoAt(fd, name, times, flags) })
}

// setTimeOf sets the time of a file or directory that can be opened.
func setTimeOf(p place, at moment) error {
	return p.in(func(root *os.Root) error {
		f, err := root.OpenFile(p.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return setTime(int(f.Fd()), "", at, unix.AT_EMPTY_PATH)
	})
}

// chmod sets the mode of a file or directory.
func (p place) chmod(mode fs.FileMode) error {
	return p.in(func(root *os.Root) error { return root.Chmod(p.name, mode) })
}

// link gives a file that has no name one. By its number alone (AT_EMPTY_PATH) users without rights may do that since Linux 6.10 only.
func (f *folder) link(file *os.File, name string) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
	return call("link", name, func() error { return unix.Linkat(unix.AT_FDCWD, from, f.fd(), name, unix.AT_SYMLINK_FOLLOW) })
}

func (f *folder) rename(from, to string) error {
	return call("rename", to, func() error { return unix.Renameat(f.fd(), from, f.fd(), to) })
}

func (f *folder) remove(name string) error {
	return call("remove", name, func() error { return unix.Unlinkat(f.fd(), name, 0) })
}

// call does a system call until no signal interrupts it, which some file systems in user space allow.
func call(op, name string, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
}

// lastFolder is the directory that was used last: the next file is most likely in it, too.
type lastFolder struct{ *folder }

// of opens the directory of what goes there.
func (l *lastFolder) of(p place) (*folder, error) {
	at := p
	at.name, _ = path.Split(p.name)
	if l.folder != nil && l.place == at {
		return l.folder, nil
	}
	l.close()
	var dir *os.File
	if err := p.in(func(root *os.Root) (err error) {
		dir, err = root.OpenFile(path.Clean(at.name), os.O_RDONLY|unix.O_DIRECTORY, 0)
		return err
	}); err != nil {
		return nil, err
	}
	l.folder = (&folder{place: at, dir: dir}).enter()
	return l.folder, nil
}

func (l *lastFolder) close() {
	if l.folder != nil {
		l.leave()
		l.folder = nil
	}
}
