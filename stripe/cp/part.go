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

// keep reads what is there of a file.
func (rc *receiver) keep(in *incoming, name string) error {
	in.kept, in.offset = sha256.New(), 0
	f, err := rc.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errNotCopied)
	}
	if in.offset, err = io.Copy(in.kept, io.LimitReader(f, in.Size)); err != nil {
		in.kept, in.offset = sha256.New(), 0
	}
	return err
}

// lockWait is how long a part may be somebody else's: the far side of an interrupted copy notices within this time.
const lockWait = 20 * time.Second

// openPart opens a part for writing from an offset on. Only one copy at a time may write it.
func (rc *receiver) openPart(name string, at int64) (*os.File, error) {
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		f, err := rc.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && rc.is(f, name) {
			if err = f.Truncate(at); err == nil {
				_, err = f.Seek(at, io.SeekStart)
			}
			if err == nil {
				return f, nil
			}
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

// is reports whether a name still is the file that was opened by it.
func (rc *receiver) is(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := rc.root.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// commit gives a complete file its mode, time and name.
func (rc *receiver) commit(in *incoming) error {
	at := in.name
	if !in.adopt {
		at = partOf(in.name)
	}
	if err := rc.root.Chmod(at, fs.FileMode(in.Mode)); err != nil {
		return err
	}
	if err := rc.root.Chtimes(at, time.Time{}, time.Unix(0, in.MTime)); err != nil || in.adopt {
		return err
	}
	return rc.root.Rename(at, in.name)
}
