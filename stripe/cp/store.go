package cp

import (
	"cmp"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A batch is what one goroutine stores in one go: passing files on one by one costs as much in waking and sleeping as a good part of storing them.
// Storing is system calls, so several goroutines gain on two cores already, and more where a file system is slow to answer.
const (
	storers    = 4
	batchFiles = 16
	batchBytes = dataBytes // more than that by less than dataBytes
)

// pass has the files stored that have arrived.
func (rc *receiver) pass() {
	if len(rc.arrived) > 0 {
		rc.batches <- rc.arrived
		rc.arrived, rc.held = nil, 0
	}
}

// runStore stores batches, also after an error: what has come need not come again.
func (rc *receiver) runStore() {
	for batch := range rc.batches {
		var err error
		for _, in := range batch {
			err = cmp.Or(err, rc.settle(in, in.store()))
		}
		if err = cmp.Or(err, rc.s.flush()); err != nil {
			select {
			case rc.failed <- err:
			default:
			}
		}
	}
}

// settle says whether a file is stored.
func (rc *receiver) settle(in *incoming, err error) error {
	if in.dir != nil {
		in.dir.leave()
	}
	if err != nil {
		in.drop(false)
		return rc.refuse(in.entry, in.place, err)
	}
	rc.progress.settle(outcomeOf(in.adopt))
	return rc.s.send(msgKept, kept{ID: in.ID, Before: in.adopt})
}

// create makes a new file that has no name until it is complete. That is less work than a part: nobody else can come upon it. It fails where a
// part may not: if there is something by that name, and on file systems that cannot do it.
func create(dir *folder, name string, e entry, data []byte) error {
	f, err := dir.open(".", unix.O_RDWR|unix.O_TMPFILE)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteAt(data, 0); err == nil {
		err = written(f, e)
	}
	if err == nil {
		err = setTime(int(f.Fd()), "", e.MTime, unix.AT_EMPTY_PATH)
	}
	if err == nil {
		err = dir.link(f, name)
	}
	return err
}

// makePart makes an empty part.
func (in *incoming) makePart(dir *folder) (err error) {
	if in.part, err = openPart(dir, in.base(), os.O_CREATE); err == nil {
		err = in.part.cut(0)
	}
	return err
}

// store gives a file that has arrived its place.
func (in *incoming) store() (err error) {
	name := in.base()
	switch {
	case in.adopt:
		in.drop(true)
		if err = setTimeOf(in.place, in.MTime); err == nil { // it has been read, which it may not be with its mode
			err = in.chmod(fs.FileMode(in.Mode))
		}
		return err
	case in.part == nil && in.isNew && create(in.dir, name, in.entry, in.data) == nil:
		return nil
	case in.part == nil:
		if err = in.makePart(in.dir); err == nil {
			_, err = in.part.WriteAt(in.data, 0)
		}
	}
	if err == nil {
		err = in.part.complete(in.entry, name)
	}
	if err == nil {
		in.part.release()
		in.part = nil
	}
	return err
}
