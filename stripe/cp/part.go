package cp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// partOf is where a file is written until it is complete: the same name each time, so that the next copy finds it.
func partOf(name string) string {
	sum := sha256.Sum256([]byte(path.Base(name)))
	return path.Join(path.Dir(name), ".plait-part-"+hex.EncodeToString(sum[:12]))
}

// keep notes what is there of a file already.
func (in *incoming) keep(f *os.File) error {
	in.offset, in.kept = 0, nil
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotCopied
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, in.Size))
	if err == nil && n > 0 {
		in.offset, in.kept = n, sum.Sum(nil)
	}
	return err
}

// lockWait is how long a part may be somebody else's: the far side of an interrupted copy notices within this time.
const lockWait = 20 * time.Second

// openPart opens a part. Only one copy at a time has it, from before it is read to its end: the far side of an interrupted copy may
// cut it short between its reading here and the writing of the rest, and would leave a hole that no sum shows.
func openPart(dir *os.Root, name string, flags int) (*os.File, error) {
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		f, err := dir.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK|flags, 0o600) // nothing is asked of the poller then
		if errors.Is(err, fs.ErrPermission) && dir.Chmod(name, 0o600) == nil && time.Since(start) < lockWait {
			continue // killed between its mode and its name
		}
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && is(dir, f, name) {
			return f, nil
		}
		f.Close()
		switch {
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, err
		case time.Since(start) <= lockWait: // it may be complete, and in its place by now
		case err == nil:
			return nil, fmt.Errorf("%s is not the file that is opened by this name; remove it", name)
		default:
			return nil, errors.New("another copy writes this file now; wait until it has ended")
		}
	}
}

// writeFrom makes the part ready to be written from an offset on.
func (rc *receiver) writeFrom(in *incoming, at int64) error {
	dir, name, err := rc.writing.of(rc.root, in.name)
	if err == nil && in.part == nil {
		in.part, err = openPart(dir, partOf(name), os.O_CREATE)
	}
	if err != nil {
		return err
	}
	if info, err := in.part.Stat(); err != nil || info.Size() == at {
		return err // a new file that is cut all the same is written to disk when it is closed: ext4 takes it for one that is replaced
	}
	return in.part.Truncate(at)
}

// is reports whether a name still is the file that was opened by it.
func is(dir *os.Root, f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := dir.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// drop closes a part, and removes one that is of no use.
func (rc *receiver) drop(in *incoming, useless bool) {
	if in.part == nil {
		return
	}
	if info, err := in.part.Stat(); useless || err == nil && info.Size() == 0 {
		_ = rc.root.Remove(partOf(in.name))
	}
	in.part.Close()
	in.part = nil
}

// written reports what went wrong with earlier writes: network file systems tell that there is no room when a file is closed. It is a duplicate
// that is closed, because the part's lock must hold until it has its name.
func written(f *os.File) error {
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		err = syscall.Close(fd)
	}
	return err
}

// commit gives a complete file its mode, time and name.
func (rc *receiver) commit(in *incoming) error {
	mode, at := fs.FileMode(in.Mode), time.Unix(0, in.MTime)
	if in.adopt {
		rc.drop(in, true)
		if err := rc.root.Chmod(in.name, mode); err != nil {
			return err
		}
		return rc.root.Chtimes(in.name, time.Time{}, at)
	}
	dir, name, err := rc.writing.of(rc.root, in.name)
	if err != nil {
		return err
	}
	part := partOf(name)
	if err = written(in.part); err == nil {
		err = in.part.Chmod(mode)
	}
	if err == nil {
		err = dir.Chtimes(part, time.Time{}, at)
	}
	if err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		return err
	}
	in.part.Close()
	in.part = nil
	return nil
}

// folder is the directory that was used last: the next file is most likely in it, too.
type folder struct {
	path string
	dir  *os.Root
}

// of opens the directory of a name below root, and says what the name is there.
func (f *folder) of(root *os.Root, name string) (*os.Root, string, error) {
	at, base := path.Split(name)
	if at == "" {
		return root, base, nil
	}
	if f.dir != nil && f.path == at {
		return f.dir, base, nil
	}
	f.close()
	dir, err := root.OpenRoot(at)
	if err != nil {
		return nil, "", err
	}
	f.path, f.dir = at, dir
	return dir, base, nil
}

func (f *folder) close() {
	if f.dir != nil {
		f.dir.Close()
		f.dir = nil
	}
}
