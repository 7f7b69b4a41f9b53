package cp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// receiver writes what a sender offers, below one directory.
type receiver struct {
	s        *stream
	root     *os.Root
	names    []string // of the sources, below root
	named    bool     // the user named what the only source is to be, and not where it goes
	mark     string   // of a directory that is made so, while not all of it is there
	absent   []bool   // there was nothing of a source
	checksum bool
	progress *Progress
	ended    bool // there are no more entries

	open    map[uint64]*incoming // files that are wanted
	current *incoming            // the one whose data comes
	dirs    map[string]directory // by name; what a sender tells twice takes no more room
	lost    string               // the last directory that could not be made
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
	mode  fs.FileMode
	mtime moment
	fresh bool
}

// runReceiver takes everything from the sender at the other end.
func runReceiver(s *stream, r request, p *Progress) error {
	rc := &receiver{s: s, absent: r.Absent, checksum: r.Checksum, progress: p, open: map[uint64]*incoming{}, dirs: map[string]directory{}}
	var err error
	if rc.root, rc.names, rc.named, err = place(r.To, r.Names, r.Into); err != nil {
		return rc.end(r.To, err)
	}
	if rc.named {
		rc.mark = markOf(r.Names[0])
	}
	defer func() { rc.root.Close() }() // it may be another one by then
	defer rc.asking.close()
	defer rc.writing.close()
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

// place opens the directory to write below, and gives the sources their names in it, as cp(1) does. It says whether the user named what the only source is to be; then
// the directory is the one that is in, or itself, if an interrupted copy has made it.
func place(to string, names []string, into bool) (root *os.Root, in []string, named bool, err error) {
	if to, err = destination(to); err != nil {
		return nil, nil, false, err
	}
	for _, n := range names {
		if !filepath.IsLocal(n) || strings.Contains(n, "/") {
			return nil, nil, false, fmt.Errorf("%q is no name for a file", n)
		}
	}
	dir, base := split(to)
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir() && !into && isMarked(to, names):
		in, named = []string{"."}, true
	case err == nil && info.IsDir():
		in = names
	case err == nil && into:
		return nil, nil, false, errors.New("is no directory, and must be one")
	case err == nil && !info.Mode().IsRegular(): // /dev/null, for instance
		return nil, nil, false, errInTheWay
	case errors.Is(err, fs.ErrNotExist) && into:
		if err := os.Mkdir(to, 0o777); err != nil {
			return nil, nil, false, absent(dir, err)
		}
		in = names
	case base == "." || base == "..": // they are there if what is before them is
		return nil, nil, false, absent(dir, err)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		root, err := os.OpenRoot(dir)
		return root, []string{base}, true, absent(dir, err)
	default:
		return nil, nil, false, err
	}
	root, err = os.OpenRoot(to)
	return root, in, named, err
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
	if e.Source < 0 || e.Source >= len(rc.names) || e.ID <= rc.lastID || len(rc.open) >= 2*maxOpen || e.Size < 0 || !e.MTime.isOne() || e.Path != "" && !filepath.IsLocal(e.Path) || len(e.Path) > maxPath || e.Kind != isLink && e.Target != "" || e.Kind == isLink && e.Path == "" {
		return fmt.Errorf("%w: entry %d, %q of source %d", errBroken, e.ID, e.Path, e.Source)
	}
	if rc.named && (rc.lastID == 0) != (e.Path == "") || rc.named && e.Path != "" && rc.names[0] != "." && rc.lost == "" { // beside what the user named nothing is written
		return fmt.Errorf("%w: entry %d, %q, which is not in %s", errBroken, e.ID, e.Path, rc.names[0])
	}
	rc.lastID = e.ID
	name := path.Join(rc.names[e.Source], e.Path)
	if e.Kind == isDir {
		e.Mode &= 0o777 | unix.S_ISVTX
	} else {
		e.Mode &= 0o777
	}
	if rc.lost != "" && strings.HasPrefix(name, rc.lost+"/") {
		if e.Kind == isFile && isAbsent(rc.absent, e) {
			rc.open[e.ID] = &incoming{entry: e, name: name, failed: true} // it comes unasked
		}
		return rc.leave(e)
	}
	var err error
	switch e.Kind {
	case isDir:
		if err = rc.makeDir(name, e); err == nil && rc.named && e.Path == "" {
			err = rc.descend()
		}
		if err != nil {
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
	file := join(rc.root.Name(), name)
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
func (rc *receiver) makeDir(name string, e entry) error {
	if rc.isTwin(e, name) {
		return errTwin
	}
	err := rc.root.Mkdir(name, 0o700)
	made := directory{mode: fs.FileMode(e.Mode & 0o777), mtime: e.MTime, fresh: err == nil}
	if e.Mode&unix.S_ISVTX != 0 {
		made.mode |= fs.ModeSticky
	}
	if err == nil && rc.named && e.Path == "" {
		if err := rc.root.WriteFile(path.Join(name, rc.mark), nil, 0o600); err != nil {
			_ = rc.root.Remove(name)
			return err
		}
	}
	if errors.Is(err, fs.ErrExist) || name == "." {
		var info fs.FileInfo
		if info, err = rc.root.Stat(name); err == nil && !info.IsDir() {
			return errors.New("is there and no directory")
		}
		if to, e := rc.root.Readlink(name); err != nil && e == nil {
			return fmt.Errorf("is a link to %s, which is not followed: it leads out of the destination, or begins with /; copy to where it leads", to)
		}
		if err == nil && info.Mode().Perm()&0o700 != 0o700 {
			_ = rc.root.Chmod(name, info.Mode().Perm()|0o700) // somebody else's may be open to us all the same
		}
	}
	if err == nil && (name != "." || rc.named) {
		rc.dirs[name] = made
	}
	return err
}

// descend goes into the directory that the user named: a link in it must not lead to what is beside it.
func (rc *receiver) descend() error {
	name := rc.names[0]
	below, err := rc.root.OpenRoot(name)
	if err != nil {
		return err
	}
	rc.root.Close()
	made := rc.dirs[name]
	rc.root, rc.names, rc.dirs = below, []string{"."}, map[string]directory{".": made}
	return nil
}

// finishDirs gives directories their modes and times, inner ones first.
func (rc *receiver) finishDirs() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(rc.dirs))) { // a directory's name begins those of what is in it
		if name == "." {
			continue
		}
		if err := rc.finishDir(name, rc.dirs[name]); err != nil {
			return err
		}
	}
	top, is := rc.dirs["."]
	if !is {
		return nil
	}
	if rc.progress.Failures() == 0 {
		_ = rc.root.Remove(rc.mark) // in most cases there is none
	}
	return rc.finishDir(".", top)
}

func (rc *receiver) finishDir(name string, d directory) error {
	info, err := rc.root.Stat(name)
	if err == nil {
		err = setTimeOf(rc.root, name, d.mtime) // with its mode nobody might be able to open it
	}
	if err == nil {
		err = rc.root.Chmod(name, d.mode|info.Mode()&fs.ModeSetgid) // that of a directory which is shared here: mkdir inherits it
	}
	if err == nil {
		return nil
	}
	return rc.tell(problem{Path: join(rc.root.Name(), name), Why: "mode and time are not set: " + cause(err)})
}
