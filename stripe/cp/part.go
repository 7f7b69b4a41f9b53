package cp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// keep reads what is there of a file into the sum.
func (in *incoming) keep(f *os.File) error {
	in.kept, in.offset = sha256.New(), 0
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotCopied
	}
	if err == nil {
		in.offset, err = io.Copy(in.kept, io.LimitReader(f, in.Size))
	}
	if err != nil {
		in.kept, in.offset = sha256.New(), 0
	}
	return err
}

// lockWait is how long a part may be somebody else's: the far side of an interrupted copy notices within this time.
const lockWait = 20 * time.Second

// openPart opens a part. Only one copy at a time has it, from before it is read to its end: the far side of an interrupted copy may
// cut it short between its reading here and the writing of the rest, and would leave a hole that no sum shows.
func (rc *receiver) openPart(name string, flags int) (*os.File, error) {
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		f, err := rc.root.OpenFile(name, os.O_RDWR|flags, 0o600)
		if errors.Is(err, fs.ErrPermission) && rc.root.Chmod(name, 0o600) == nil && time.Since(start) < lockWait {
			continue // killed between its mode and its name
		}
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && rc.is(f, name) {
			return f, nil
		}
		f.Close()
		switch {
		case err == nil: // complete, and in its place by now
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, err
		case time.Since(start) > lockWait:
			return nil, errors.New("another copy writes this file now; wait until it has ended")
		}
	}
}

// writeFrom makes the part ready to be written from an offset on.
func (rc *receiver) writeFrom(in *incoming, at int64) (err error) {
	if in.part == nil {
		if in.part, err = rc.openPart(partOf(in.name), os.O_CREATE); err != nil {
			return err
		}
	}
	if err = in.part.Truncate(at); err == nil {
		_, err = in.part.Seek(at, io.SeekStart)
	}
	return err
}

// is reports whether a name still is the file that was opened by it.
func (rc *receiver) is(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := rc.root.Lstat(name)
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
	at := in.name
	if in.adopt {
		rc.drop(in, true)
	} else {
		at = partOf(in.name)
		if err := written(in.part); err != nil {
			return err
		}
	}
	if err := rc.root.Chmod(at, fs.FileMode(in.Mode)); err != nil {
		return err
	}
	if err := rc.root.Chtimes(at, time.Time{}, time.Unix(0, in.MTime)); err != nil || in.adopt {
		return err
	}
	if err := rc.root.Rename(at, in.name); err != nil {
		return err
	}
	in.part.Close()
	in.part = nil
	return nil
}
