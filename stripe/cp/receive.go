package cp

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// receiver writes what a sender offers, below one directory.
type receiver struct {
	s        *stream
	root     *os.Root
	names    []string // of the sources, below root
	checksum bool
	progress *Progress

	open    map[uint64]*incoming // files that are wanted
	current *incoming            // the one whose data comes
	dirs    []entry              // whose modes and times are set at the end
	fresh   map[string]bool      // directories that were made: there is nothing in them to go on from
	lost    string               // the last directory that could not be made
	asking  folder               // of the last entry
	writing folder               // of the last file that came
	lastID  uint64
}

// incoming is a file that is wanted.
type incoming struct {
	entry
	name   string // below root
	offset int64
	kept   []byte // SHA-256 of the offset bytes that are there of it already
	adopt  bool   // what is there is the destination itself, not a part
	part   *os.File
	at     int64
	sum    uint32 // of what came
	failed bool   // the sender has been told; what still comes of it is dropped
}

// runReceiver takes everything from the sender at the other end.
func runReceiver(s *stream, r request, p *Progress) error {
	rc := &receiver{s: s, checksum: r.Checksum, progress: p, open: map[uint64]*incoming{}, fresh: map[string]bool{}}
	var err error
	if rc.root, rc.names, err = place(r.To, r.Names, r.Into); err != nil {
		return rc.end(r.To, err)
	}
	defer rc.root.Close()
	defer rc.asking.close()
	defer rc.writing.close()
	defer func() {
		for _, in := range rc.open {
			rc.drop(in, false)
		}
		if rc.current != nil {
			rc.drop(rc.current, false)
		}
	}()
	var buf []byte
	for {
		if s.idle() {
			if err := s.flush(); err != nil {
				return err
			}
		}
		kind, body, err := s.next(&buf)
		if err != nil {
			return err
		}
		if kind == msgEnd {
			break
		}
		if err := rc.take(kind, body); err != nil {
			return err
		}
	}
	if err := rc.finishDirs(); err != nil {
		return err
	}
	if err := s.send(msgBye, struct{}{}); err != nil {
		return err
	}
	return s.flush()
}

// end ends the copy, and says why.
func (rc *receiver) end(path string, err error) error {
	why := advice(err, "write there")
	_ = rc.s.send(msgProblem, problem{Path: path, Why: why, Ends: true})
	_ = rc.s.flush()
	return &endedError{path, why, false}
}

// place opens the directory to write below, and gives the sources their names in it, as cp(1) does.
func place(to string, names []string, into bool) (*os.Root, []string, error) {
	to, err := home(to)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		if !filepath.IsLocal(n) || strings.Contains(n, "/") {
			return nil, nil, fmt.Errorf("%q is no name for a file", n)
		}
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
	case err == nil && into:
		return nil, nil, errors.New("is no directory, and must be one")
	case errors.Is(err, fs.ErrNotExist) && into:
		if err := os.Mkdir(to, 0o777); err != nil {
			return nil, nil, absent(filepath.Dir(to), err)
		}
	case err == nil || errors.Is(err, fs.ErrNotExist):
		root, err := os.OpenRoot(filepath.Dir(to))
		return root, []string{filepath.Base(to)}, absent(filepath.Dir(to), err)
	default:
		return nil, nil, err
	}
	root, err := os.OpenRoot(to)
	return root, names, err
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
	if e.Source < 0 || e.Source >= len(rc.names) || e.ID <= rc.lastID || len(rc.open) >= 2*maxOpen || e.Size < 0 || e.Path != "" && !filepath.IsLocal(e.Path) {
		return fmt.Errorf("%w: entry %d, %q of source %d", errBroken, e.ID, e.Path, e.Source)
	}
	rc.lastID = e.ID
	name := path.Join(rc.names[e.Source], e.Path)
	e.Mode &= 0o777
	if rc.lost != "" && strings.HasPrefix(name, rc.lost+"/") {
		return rc.leave(e)
	}
	var err error
	switch e.Kind {
	case isDir:
		if err = rc.makeDir(name, e); err != nil {
			rc.lost = name
		}
	case isLink:
		err = rc.makeLink(name, e)
	case isFile:
		return rc.ask(&incoming{entry: e, name: name})
	default:
		return fmt.Errorf("%w: entry of kind %q", errBroken, e.Kind)
	}
	if err != nil {
		return rc.refuse(e, name, err)
	}
	return rc.s.send(msgKept, kept{ID: e.ID})
}

// refuse says that an entry is not copied, or ends the copy if nothing more can be.
func (rc *receiver) refuse(e entry, name string, err error) error {
	file := filepath.Join(rc.root.Name(), name)
	if full(err) {
		return rc.end(file, err)
	}
	why := advice(err, "write there")
	if e.Kind == isDir {
		why += "; nothing below it is copied"
	}
	if e.Kind == isFile {
		rc.progress.settle(failed, e.Size)
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
		rc.progress.settle(failed, e.Size)
	}
	return rc.s.send(msgProblem, problem{ID: e.ID})
}

// makeDir makes a directory that can be written to for now.
func (rc *receiver) makeDir(name string, e entry) error {
	err := rc.root.Mkdir(name, 0o700)
	rc.fresh[name] = err == nil
	if errors.Is(err, fs.ErrExist) || name == "." {
		var info fs.FileInfo
		if info, err = rc.root.Stat(name); err == nil && !info.IsDir() {
			return errors.New("is there and no directory")
		}
		if err == nil && info.Mode().Perm()&0o700 != 0o700 {
			_ = rc.root.Chmod(name, info.Mode().Perm()|0o700) // somebody else's may be open to us all the same
		}
	}
	if err == nil && name != "." {
		e.Path = name
		rc.dirs = append(rc.dirs, e)
	}
	return err
}

// finishDirs gives directories their modes and times, inner ones first.
func (rc *receiver) finishDirs() error {
	for _, d := range slices.Backward(rc.dirs) {
		err := rc.root.Chmod(d.Path, fs.FileMode(d.Mode))
		if err == nil {
			err = rc.root.Chtimes(d.Path, time.Time{}, time.Unix(0, d.MTime))
		}
		if err == nil {
			continue
		}
		if err := rc.tell(problem{Path: filepath.Join(rc.root.Name(), d.Path), Why: "mode and time are not set: " + cause(err)}); err != nil {
			return err
		}
	}
	return nil
}

// makeLink makes a symbolic link with the same target, wherever that leads: nothing is written through it.
func (rc *receiver) makeLink(name string, e entry) error {
	if old, err := rc.root.Readlink(name); err == nil && old == e.Target {
		return nil
	}
	if info, err := rc.root.Lstat(name); err == nil {
		if info.IsDir() {
			return errors.New("a directory is in the way of a link")
		}
		if err := rc.root.Remove(name); err != nil {
			return err
		}
	}
	return rc.root.Symlink(e.Target, name)
}

// ask says what is needed of a file: nothing, the rest, or all of it.
func (rc *receiver) ask(in *incoming) error {
	if rc.fresh[path.Dir(in.name)] {
		rc.open[in.ID] = in
		return rc.s.send(msgWant, want{ID: in.ID})
	}
	dir, name, err := rc.asking.of(rc.root, in.name)
	if err != nil {
		return rc.refuse(in.entry, in.name, err)
	}
	if in.part, err = openPart(dir, partOf(name), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rc.refuse(in.entry, in.name, err)
	}
	info, err := dir.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		rc.drop(in, false)
		return rc.refuse(in.entry, in.name, errors.New("a directory is in the way of a file"))
	case err == nil && info.Mode().IsRegular() && info.Size() == in.Size && !rc.checksum && info.ModTime().UnixNano() == in.MTime:
		rc.drop(in, true)
		if info.Mode().Perm() != fs.FileMode(in.Mode) {
			if err := dir.Chmod(name, fs.FileMode(in.Mode)); err != nil {
				return rc.refuse(in.entry, in.name, err)
			}
		}
		rc.progress.settle(before, in.Size)
		return rc.s.send(msgKept, kept{in.ID, true})
	}
	if err == nil && rc.checksum && info.Mode().IsRegular() && info.Size() == in.Size {
		if there, err := dir.Open(name); err == nil {
			in.adopt = in.keep(there) == nil && in.offset == in.Size
			there.Close()
		}
	}
	if !in.adopt {
		in.offset, in.kept = 0, nil
	}
	if !in.adopt && in.part != nil {
		if err := in.keep(in.part); err != nil {
			rc.drop(in, false)
			return rc.refuse(in.entry, in.name, err)
		}
	}
	rc.open[in.ID] = in
	return rc.s.send(msgWant, want{in.ID, in.offset, in.kept})
}

// begin opens the part of the file whose data follows.
func (rc *receiver) begin(b begin) error {
	in := rc.open[b.ID]
	if in == nil || rc.current != nil || b.Offset != 0 && b.Offset != in.offset {
		return fmt.Errorf("%w: data of entry %d from %d", errBroken, b.ID, b.Offset)
	}
	delete(rc.open, b.ID)
	rc.current = in
	in.at = b.Offset
	rc.progress.Bytes.Add(b.Offset)
	if in.adopt = in.adopt && b.Offset == in.Size; in.adopt {
		return nil
	}
	if err := rc.writeFrom(in, in.at); err != nil {
		return rc.give(in, err)
	}
	return nil
}

// give gives a file up.
func (rc *receiver) give(in *incoming, err error) error {
	in.failed = true
	if err := rc.refuse(in.entry, in.name, err); err != nil {
		return err
	}
	return rc.s.flush() // the sender stops sending it
}

// data writes some of the current file.
func (rc *receiver) data(b []byte) error {
	in := rc.current
	if in == nil || in.at+int64(len(b)) > in.Size {
		return fmt.Errorf("%w: more data than the file has", errBroken)
	}
	at := in.at
	in.at += int64(len(b))
	rc.progress.Bytes.Add(int64(len(b)))
	rc.progress.SentBytes.Add(int64(len(b)))
	if in.failed {
		return nil
	}
	in.sum = crc32.Update(in.sum, castagnoli, b)
	if _, err := in.part.WriteAt(b, at); err != nil {
		return rc.give(in, err)
	}
	return nil
}

// done verifies the current file and puts it in its place.
func (rc *receiver) done(d done) error {
	in := rc.current
	if in == nil {
		return fmt.Errorf("%w: the end of no file", errBroken)
	}
	rc.current = nil
	if in.failed || d.Broken {
		rc.drop(in, false)
		if in.failed {
			return nil
		}
		return rc.leave(in.entry)
	}
	if in.at != in.Size || in.sum != d.Sum {
		rc.drop(in, true)
		return rc.refuse(in.entry, in.name, errors.New("its content is not what was sent; run the same command again"))
	}
	if err := rc.commit(in); err != nil {
		rc.drop(in, false)
		return rc.refuse(in.entry, in.name, err)
	}
	rc.progress.settle(copied, in.Size)
	return rc.s.send(msgKept, kept{ID: in.ID})
}
