package cp

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// incoming is a file that is wanted.
type incoming struct {
	entry
	place
	offset int64
	kept   []byte // SHA-256 of the offset bytes that are there of it already
	adopt  bool   // what is there is the destination itself, not a part
	part   *part  // nil before it is needed
	data   []byte // all of the file if it came in one message: it has no part then
	isNew  bool   // there was nothing by its name
	dir    *folder
	at     int64
	last   int64  // where the last message began: if the sender could not read on, it has zeros
	sum    uint32 // of what came
	failed bool   // the sender has been told; what still comes of it is dropped
}

// drop gives up what there is of a file that is not complete.
func (in *incoming) drop(useless bool) {
	if in.part != nil {
		in.part.drop(useless)
		in.part = nil
	}
}

// keep notes what is there of a file already.
func (in *incoming) keep(there io.Reader) error {
	in.offset, in.kept = 0, nil
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(there, in.Size))
	if err == nil && n > 0 {
		in.offset, in.kept = n, sum.Sum(nil)
	}
	return err
}

// ask says what is needed of a file: nothing, the rest, or all of it.
func (rc *receiver) ask(in *incoming) error {
	var never error
	switch {
	case isPart(in.base()):
		never = errPart
	case rc.isTwin(in.entry, in.place):
		never = errTwin
	}
	if never != nil {
		if isAbsent(rc.absent, in.entry) {
			in.failed = true // it comes unasked
			rc.open[in.ID] = in
		}
		return rc.refuse(in.entry, in.place, never)
	}
	if in.isNew = rc.dirs[path.Dir(path.Join(rc.names[in.Source], in.Path))].fresh || isAbsent(rc.absent, in.entry); !in.isNew {
		if there, err := rc.look(in); err != nil || there {
			in.drop(there)
			if err != nil {
				return rc.refuse(in.entry, in.place, err)
			}
			rc.progress.settle(before)
			rc.progress.Bytes.Add(in.Size)
			return rc.s.send(msgKept, kept{ID: in.ID, Before: true})
		}
	}
	rc.open[in.ID] = in
	if isAbsent(rc.absent, in.entry) {
		return nil // it comes unasked
	}
	return rc.s.send(msgWant, want{ID: in.ID, Offset: in.offset, Sum: in.kept})
}

// look reports whether a file is there already, and notes what is there of it.
func (rc *receiver) look(in *incoming) (there bool, err error) {
	dir, err := rc.asking.of(in.place)
	if err != nil {
		return false, err
	}
	name := in.base()
	if in.part, err = openPart(dir, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	found, err := dir.stat(name)
	in.isNew = errors.Is(err, fs.ErrNotExist)
	switch kind := found.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		return false, errors.New("a directory is in the way of a file")
	case kind != 0 && kind != unix.S_IFREG && kind != unix.S_IFLNK:
		return false, errInTheWay
	case kind != unix.S_IFREG || found.Size != in.Size:
	case !rc.checksum && in.isTime(momentAt(found.Mtim), dir):
		if found.Mode&0o777 != in.Mode {
			err = in.chmod(fs.FileMode(in.Mode))
		}
		return err == nil, err
	case rc.checksum:
		if f, err := dir.open(name, unix.O_RDONLY|unix.O_NONBLOCK); err == nil {
			in.adopt = in.keep(f) == nil && in.offset == in.Size
			f.Close()
		}
	}
	if in.adopt {
		return false, nil
	}
	in.offset, in.kept = 0, nil
	if in.part == nil {
		return false, nil
	}
	return false, in.keep(in.part)
}

// isTime reports whether a time is what the file system has for a file that was given the entry's. Some keep coarser times, FAT even seconds only. They are
// asked, with a part: on others, what was written within the same second is another content, though it may be of the same size.
func (in *incoming) isTime(has moment, dir *folder) bool {
	past := in.MTime.time().Sub(has.time())
	if past <= 0 || past >= 2*time.Second || in.part != nil {
		return past == 0
	}
	if in.makePart(dir) != nil || dir.setTime(in.part.name, in.MTime) != nil {
		return false
	}
	given, err := dir.stat(in.part.name)
	return err == nil && momentAt(given.Mtim) == has
}

// begin takes the file whose data follows.
func (rc *receiver) begin(b begin) error {
	in := rc.open[b.ID]
	if in == nil || rc.current != nil || b.Offset != 0 && b.Offset != in.offset {
		return fmt.Errorf("%w: data of entry %d from %d", errBroken, b.ID, b.Offset)
	}
	delete(rc.open, b.ID)
	rc.current = in
	in.at, in.last = b.Offset, b.Offset
	rc.progress.Bytes.Add(b.Offset)
	in.adopt = in.adopt && b.Offset == in.Size
	if in.adopt || in.part == nil {
		return nil
	}
	if err := in.part.cut(in.at); err != nil {
		return rc.give(in, err)
	}
	return nil
}

// give gives a file up.
func (rc *receiver) give(in *incoming, err error) error {
	in.failed = true
	if err := rc.refuse(in.entry, in.place, err); err != nil {
		return err
	}
	return rc.s.flush() // the sender stops sending it
}

// data takes some of the current file: all of a small one is kept, of others it is written.
func (rc *receiver) data(b []byte) error {
	in := rc.current
	if in == nil || len(b) == 0 || in.at+int64(len(b)) > in.Size {
		return fmt.Errorf("%w: data of no file, or more than it has", errBroken)
	}
	at := in.at
	in.last = at
	in.at += int64(len(b))
	rc.progress.Bytes.Add(int64(len(b)))
	rc.progress.SentBytes.Add(int64(len(b)))
	if in.failed {
		return nil
	}
	in.sum = crc32.Update(in.sum, castagnoli, b)
	if in.part == nil && int64(len(b)) == in.Size {
		in.data = bytes.Clone(b)
		return nil
	}
	if in.part == nil {
		rc.pass() // a file of the same name may have arrived, from another source, and have the part
		dir, err := rc.writing.of(in.place)
		if err == nil {
			err = in.makePart(dir)
		}
		if err != nil {
			return rc.give(in, err)
		}
	}
	if _, err := in.part.WriteAt(b, at); err != nil {
		return rc.give(in, err)
	}
	return nil
}

// done verifies the current file and has it stored.
func (rc *receiver) done(d done) error {
	in := rc.current
	if in == nil {
		return fmt.Errorf("%w: the end of no file", errBroken)
	}
	rc.current = nil
	if in.failed || d.Broken {
		if in.part != nil && !in.failed {
			_ = in.part.Truncate(in.last)
		}
		in.drop(false)
		if in.failed {
			return nil
		}
		return rc.leave(in.entry)
	}
	if in.at != in.Size || in.sum != d.Sum {
		in.drop(true)
		return rc.refuse(in.entry, in.place, errors.New("its content is not what was sent; run the same command again"))
	}
	if in.part == nil && !in.adopt {
		dir, err := rc.writing.of(in.place)
		if err != nil {
			return rc.refuse(in.entry, in.place, err)
		}
		in.dir = dir.enter()
	}
	rc.arrived, rc.held = append(rc.arrived, in), rc.held+len(in.data)
	if len(rc.arrived) == batchFiles || rc.held >= batchBytes {
		rc.pass()
	}
	return nil
}
