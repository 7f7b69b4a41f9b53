package cp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// receiver writes what a sender offers, below one directory.
type receiver struct {
	s        *stream
	root     *os.Root // the destination
	names    []string // of the sources, below root
	sources  []source
	named    bool     // the user named what the only source is to be, and not where it goes
	within   []string // which directories the destination is in
	mark     string   // of a directory that is made so, while not all of it is there
	absent   []bool   // there was nothing of a source
	checksum bool
	progress *Progress
	ended    bool // there are no more entries

	open    map[uint64]*incoming // files that are wanted
	current *incoming            // the one whose data comes
	dirs    map[string]directory // by name below root; what a sender tells twice takes no more room
	asking  lastFolder           // of the last entry
	writing lastFolder           // of the last file that came
	lastID  uint64

	arrived []*incoming // the next batch
	held    int         // bytes of it in memory
	batches chan []*incoming
	failed  chan error // what ends everything, whoever meets it first
}

// directory is one whose mode and time are set at the end. A fresh one was made: there is nothing in it to go on from.
type directory struct {
	place
	mode  fs.FileMode
	mtime moment
	fresh bool
}

// runReceiver takes everything from the sender at the other end.
func runReceiver(s *stream, r request, p *Progress) error {
	rc := &receiver{s: s, absent: r.Absent, checksum: r.Checksum, progress: p, open: map[uint64]*incoming{}, dirs: map[string]directory{}}
	root, names, named, err := openDestination(r.To, r.Names, r.Into)
	if err != nil {
		return rc.end(r.To, err)
	}
	rc.writeBelow(root, names)
	rc.within = around(root)
	if rc.named = named; named {
		rc.mark = markOf(r.Names[0])
	}
	defer rc.close()
	if err := rc.takeAll(); err != nil {
		return err
	}
	if err := rc.finishDirs(); err != nil {
		return err
	}
	if err := s.send(msgBye, struct{}{}); err != nil {
		return err
	}
	return s.flush()
}

// writeBelow says where the sources go, each until its directory is there.
func (rc *receiver) writeBelow(root *os.Root, names []string) {
	rc.root, rc.names, rc.sources = root, names, make([]source, len(names))
	for i, name := range names {
		rc.sources[i].place = place{root, "", name}
	}
}

// close gives up the directories that are open.
func (rc *receiver) close() {
	rc.asking.close()
	rc.writing.close()
	rc.root.Close()
}

// takeAll does what the sender says until that is all. What has come is stored then.
func (rc *receiver) takeAll() (err error) {
	rc.batches, rc.failed = make(chan []*incoming, storers), make(chan error, 1)
	var storing sync.WaitGroup
	for range storers {
		storing.Go(rc.runStore)
	}
	defer func() {
		if err != nil {
			rc.s.mute()
		}
		rc.pass()
		close(rc.batches)
		storing.Wait()
		close(rc.failed)
		failed := <-rc.failed
		if err == nil || errors.As(failed, new(*endedError)) { // why there is no going on says more than that the sender has gone since
			err = cmp.Or(failed, err)
		}
		if rc.current != nil {
			rc.current.drop(false)
		}
		for _, in := range rc.open {
			in.drop(false)
		}
	}()
	var buf []byte
	for !rc.ended || len(rc.open) > 0 || rc.current != nil {
		if rc.s.idle() {
			rc.pass()
			if err := rc.s.flush(); err != nil {
				return err
			}
		}
		kind, body, err := rc.s.next(&buf)
		if err != nil || len(rc.failed) > 0 {
			return err
		}
		if err := rc.take(kind, body); err != nil {
			return err
		}
	}
	return nil
}

// end ends the copy, and says why.
func (rc *receiver) end(path string, err error) error {
	why := advice(err, "write there")
	_ = rc.s.send(msgProblem, problem{Path: path, Why: why, Ends: true})
	_ = rc.s.flush()
	ended := &endedError{path, why, false}
	select {
	case rc.failed <- ended:
	default: // an earlier one, or nothing is stored yet
	}
	rc.s.mute()
	return ended
}

// take does what a message says. An error is one of the connection; what goes wrong with a file is told to the sender.
func (rc *receiver) take(kind byte, body []byte) error {
	switch kind {
	case msgEntry:
		e, err := decode[entry](kind, body)
		if err != nil {
			return err
		}
		return rc.takeEntry(e)
	case msgTotal:
		t, err := decode[total](kind, body)
		rc.progress.total(t)
		return err
	case msgEnd:
		rc.ended = true
		return nil
	case msgProblem:
		p, err := decode[problem](kind, body)
		rc.progress.tell(Problem{p.Path, p.Why, p.Fine, true})
		return err
	case msgBegin:
		b, err := decode[begin](kind, body)
		if err != nil {
			return err
		}
		return rc.begin(b)
	case msgData:
		return rc.data(body)
	case msgDone:
		d, err := decode[done](kind, body)
		if err != nil {
			return err
		}
		return rc.done(d)
	}
	return fmt.Errorf("%w: message %q from the sender", errBroken, kind)
}

// takeEntry makes what is complete at once, and asks for a file's data.
func (rc *receiver) takeEntry(e entry) error {
	if e.Source < 0 || e.Source >= len(rc.names) || e.ID <= rc.lastID || len(rc.open) >= 2*maxOpen || e.Size < 0 || !e.MTime.isOne() || e.Kind != isLink && e.Target != "" || !rc.sources[e.Source].takes(e) {
		return fmt.Errorf("%w: entry %d, %q of source %d", errBroken, e.ID, e.Path, e.Source)
	}
	s := &rc.sources[e.Source]
	rc.lastID, s.begun = e.ID, true
	to := s.at(e)
	if e.Kind == isDir {
		e.Mode &= 0o777 | unix.S_ISVTX
	} else {
		e.Mode &= 0o777
	}
	if s.loses(to) {
		if e.Kind == isFile && isAbsent(rc.absent, e) {
			rc.open[e.ID] = &incoming{entry: e, place: to, failed: true} // it comes unasked
		}
		return rc.leave(e)
	}
	var err error
	switch e.Kind {
	case isDir:
		if err = rc.makeDir(to, e); err == nil && e.Path == "" {
			err = s.descend()
		}
		if err != nil {
			s.lost = to.name
		}
	case isLink:
		err = rc.makeLink(to, e)
	case isFile:
		return rc.ask(&incoming{entry: e, place: to})
	default:
		return fmt.Errorf("%w: entry of kind %q", errBroken, e.Kind)
	}
	if err != nil {
		return rc.refuse(e, to, err)
	}
	return rc.s.send(msgKept, kept{ID: e.ID})
}

// refuse says that an entry is not copied, or ends the copy if nothing more can be.
func (rc *receiver) refuse(e entry, to place, err error) error {
	file := to.String()
	if hopeless(err) {
		return rc.end(file, err)
	}
	why := advice(err, "write there")
	if e.Kind == isDir {
		why += "; nothing below it is copied"
	}
	if e.Kind == isFile {
		rc.progress.settle(failed)
	}
	return rc.tell(problem{ID: e.ID, Path: file, Why: why})
}

// tell tells the user, and the other end.
func (rc *receiver) tell(p problem) error {
	rc.progress.tell(Problem{p.Path, p.Why, p.Fine, false})
	return rc.s.send(msgProblem, p)
}

// leave answers an entry that is not copied for a reason the user knows.
func (rc *receiver) leave(e entry) error {
	if e.Kind == isFile {
		rc.progress.settle(failed)
	}
	return rc.s.send(msgProblem, problem{ID: e.ID})
}

// makeDir makes a directory that can be written to for now.
func (rc *receiver) makeDir(to place, e entry) error {
	switch {
	case e.Which != "" && slices.Contains(rc.within, e.Which):
		return errWithin
	case rc.isTwin(e, to):
		return errTwin
	}
	made := directory{place: to, mode: fs.FileMode(e.Mode & 0o777), mtime: e.MTime}
	if e.Mode&unix.S_ISVTX != 0 {
		made.mode |= fs.ModeSticky
	}
	err := to.in(func(root *os.Root) (err error) {
		mark := ""
		if rc.named && e.Path == "" {
			mark = rc.mark
		}
		made.fresh, err = makeDir(root, to.name, mark)
		return err
	})
	if at := path.Join(rc.names[e.Source], e.Path); err == nil && (at != "." || rc.named) {
		rc.dirs[at] = made
	}
	return err
}

// makeDir makes one, with a mark in it if one is given, or has the one that is there be written to.
func makeDir(root *os.Root, name, mark string) (fresh bool, err error) {
	err = root.Mkdir(name, 0o700)
	fresh = err == nil
	if fresh && mark != "" {
		if err := root.WriteFile(path.Join(name, mark), nil, 0o600); err != nil {
			_ = root.Remove(name)
			return fresh, err
		}
	}
	if errors.Is(err, fs.ErrExist) || name == "." {
		var info fs.FileInfo
		if info, err = root.Stat(name); err == nil && !info.IsDir() {
			return fresh, errors.New("is there and no directory")
		}
		if to, e := root.Readlink(name); err != nil && e == nil {
			return fresh, fmt.Errorf("is a link to %s, which is not followed: it leads out of the destination, or of what is copied, or begins with /; copy to where it leads", to)
		}
		if err == nil && info.Mode().Perm()&0o700 != 0o700 {
			_ = root.Chmod(name, info.Mode().Perm()|0o700) // somebody else's may be open to us all the same
		}
	}
	return fresh, err
}

// finishDirs gives directories their modes and times, inner ones first.
func (rc *receiver) finishDirs() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(rc.dirs))) { // a directory's name begins those of what is in it
		if rc.named && name == rc.names[0] {
			continue
		}
		if err := rc.finishDir(rc.dirs[name]); err != nil {
			return err
		}
	}
	if !rc.named {
		return nil
	}
	top, is := rc.dirs[rc.names[0]]
	if !is {
		return nil
	}
	if rc.progress.Failures() == 0 {
		_ = top.in(func(root *os.Root) error { return root.Remove(path.Join(top.name, rc.mark)) }) // in most cases there is none
	}
	return rc.finishDir(top)
}

func (rc *receiver) finishDir(d directory) error {
	var info fs.FileInfo
	err := d.in(func(root *os.Root) (err error) { info, err = root.Stat(d.name); return err })
	if err == nil {
		err = setTimeOf(d.place, d.mtime) // with its mode nobody might be able to open it
	}
	if err == nil {
		err = d.chmod(d.mode | info.Mode()&fs.ModeSetgid) // that of a directory which is shared here: mkdir inherits it
	}
	if err == nil {
		return nil
	}
	return rc.tell(problem{Path: d.String(), Why: "mode and time are not set: " + cause(err)})
}
