package cp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// part is a file while it is not complete. One copy at a time has it.
type part struct {
	*os.File
	dir  *folder
	name string // in dir
	size int64  // when it was opened
}

const (
	partPrefix = ".plait-part-"
	partDigits = 24
)

// partOf is what a file is called until it is complete: the same each time, so that the next copy finds it.
func partOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return partPrefix + hex.EncodeToString(sum[:])[:partDigits]
}

// markOf is what a directory has in it that is made for a source under a name the user chose, until all of it is there: the next copy goes on in it, where it
// would otherwise make another one in it, as cp(1) does.
func markOf(source string) string { return partOf("/" + source) } // no file has such a name

// isMarked reports whether a directory was made for the only one of these sources, and not all of it came. In one that all may write to, somebody else may have put the mark there.
func isMarked(dir string, sources []string) bool {
	if base := filepath.Base(dir); len(sources) != 1 || base == "." || base == ".." || base == "/" {
		return false
	}
	var mark, in unix.Stat_t
	err := errors.Join(unix.Lstat(join(dir, markOf(sources[0])), &mark), unix.Stat(dir, &in))
	return err == nil && mark.Mode&unix.S_IFMT == unix.S_IFREG && mark.Nlink == 1 && (int(mark.Uid) == os.Geteuid() || mark.Uid == in.Uid)
}

// isPart reports whether a part may have this name: copied as a file, it would take the place of the one that is written.
func isPart(name string) bool {
	digits, is := strings.CutPrefix(name, partPrefix)
	return is && len(digits) == partDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// lockWait is how long a part may be somebody else's: the far side of an interrupted copy notices within this time.
const lockWait = 20 * time.Second

// openPart opens the part of a file. Only one copy at a time has it, from before it is read to its end: the far side of an interrupted copy may
// cut it short between its reading here and the writing of the rest, and would leave a hole that no sum shows.
func openPart(dir *folder, file string, flags int) (*part, error) {
	name := partOf(file)
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		f, isNew, err := openOrMake(dir, name, flags)
		switch {
		case errors.Is(err, fs.ErrPermission) && dir.of(name).chmod(0o600) == nil && time.Since(start) < lockWait:
			continue // killed between its mode and its name
		case errors.Is(err, fs.ErrNotExist) && flags&unix.O_CREAT != 0 && !isNew && time.Since(start) < lockWait:
			continue // it was there a moment ago; if it could not be made, the directory is gone
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("%s is a link and no part of a file; remove it", name)
		case err != nil:
			return nil, err
		}
		p := &part{File: f, dir: dir, name: name}
		if !isNew && !p.isOurs() {
			f.Close()
			return nil, fmt.Errorf("%s is there, of another user or with a second name, and who has it could change the file afterwards; remove it", name)
		}
		locked := call("lock", name, func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		if locked == nil && p.isThere() {
			dir.enter()
			return p, nil
		}
		f.Close()
		switch {
		case locked != nil && !errors.Is(locked, unix.EWOULDBLOCK):
			return nil, unlocked(locked)
		case time.Since(start) <= lockWait: // it may be complete, and in its place by now
		case locked == nil:
			return nil, fmt.Errorf("%s is no file, or not the one that is opened by this name; remove it", name)
		default:
			return nil, errors.New("another copy writes this file now; if it was interrupted, its end on that host (plait stripe serve) gives up within 4 minutes: wait for that, or end it")
		}
	}
}

// openOrMake opens a part, or makes it if flags have O_CREAT and it is not there. One that was made is this user's, whatever the file system says.
func openOrMake(dir *folder, name string, flags int) (f *os.File, isNew bool, err error) {
	if flags&unix.O_CREAT != 0 {
		if f, err = dir.open(name, unix.O_RDWR|flags|unix.O_EXCL); err == nil || !errors.Is(err, fs.ErrExist) {
			return f, true, err
		}
	}
	f, err = dir.open(name, unix.O_RDWR|flags&^unix.O_CREAT)
	return f, false, err
}

// isOurs reports whether a part that was there has one name and belongs to this user, or to the directory's, who may do there what he likes. In a directory that all may write
// to, such as /tmp, somebody else could have put it there.
func (p *part) isOurs() bool {
	var file, dir unix.Stat_t
	err := call("stat", p.name, func() error { return unix.Fstat(int(p.Fd()), &file) })
	if err == nil {
		err = call("stat", p.name, func() error { return unix.Fstat(p.dir.fd(), &dir) })
	}
	return err == nil && file.Nlink <= 1 && (int(file.Uid) == os.Geteuid() || file.Uid == dir.Uid)
}

// unlocked is why a part cannot be locked.
func unlocked(err error) error {
	if errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w (%w)", errNoLocks, err)
	}
	return err
}

// isThere notes the part's size and reports whether its name still is that of the file that was opened by it.
func (p *part) isThere() bool {
	var opened unix.Stat_t
	if err := call("stat", p.name, func() error { return unix.Fstat(int(p.Fd()), &opened) }); err != nil {
		return false
	}
	p.size = opened.Size
	named, err := p.dir.stat(p.name)
	return err == nil && named.Dev == opened.Dev && named.Ino == opened.Ino && named.Mode&unix.S_IFMT == unix.S_IFREG
}

// release closes the part.
func (p *part) release() {
	p.Close()
	p.dir.leave()
}

// drop closes a part that is not complete, for the next copy to go on with, and removes one that is of no use.
func (p *part) drop(useless bool) {
	if info, err := p.Stat(); useless || err == nil && info.Size() == 0 {
		_ = p.dir.remove(p.name)
	}
	p.release()
}

// cut makes the part end at an offset.
func (p *part) cut(at int64) error {
	if p.size == at {
		return nil // a new file that is cut all the same is written to disk when it is closed: ext4 takes it for one that is replaced
	}
	return p.Truncate(at)
}

// complete gives a part that is all of a file its mode, time and name.
func (p *part) complete(e entry, name string) error {
	err := written(p.File, e)
	if err == nil {
		err = p.dir.setTime(p.name, e.MTime)
	}
	if err == nil && !p.isThere() {
		err = errors.New("its part was taken away while it was written; run the same command again")
	}
	if err == nil {
		err = p.dir.rename(p.name, name)
	}
	return err
}

// written gives a file its mode and reports what went wrong with earlier writes: network file systems tell that there is no room when a file is
// closed. It is a duplicate that is closed, because a part's lock must hold until it has its name.
func written(f *os.File, e entry) error {
	fd, err := unix.Dup(int(f.Fd()))
	if err == nil {
		err = unix.Close(fd)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(e.Mode))
	}
	return err
}
