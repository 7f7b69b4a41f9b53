package cp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// countAfter is how long the walk may take before everything is counted apart from it.
const countAfter = time.Second

// runCount tells how much there is while the walk, which waits for the receiver's answers, is not at its end.
func (se *sender) runCount() {
	var t total
	for _, source := range se.sources {
		top, err := follow(source)
		if err != nil {
			continue // the walk tells
		}
		_ = visitAll(top, func(file string, d fs.DirEntry, err error) error {
			if se.ended() {
				return fs.SkipAll
			}
			if err == nil && d.Type().IsRegular() && (file == top || !isPart(d.Name())) {
				if info, err := d.Info(); err == nil {
					t.Files++
					t.Bytes += info.Size()
				}
			}
			return nil
		})
	}
	_ = se.sendTotal(t, false)
}

// sendTotal says how much there is. The last to say so is the walk.
func (se *sender) sendTotal(t total, last bool) error {
	se.counting.Lock()
	defer se.counting.Unlock()
	if se.counted || se.ended() {
		return nil
	}
	se.counted = last
	se.progress.total(t)
	if err := se.s.send(msgTotal, t); err != nil {
		return err
	}
	return se.s.flush()
}

func (p *Progress) total(t total) {
	p.TotalFiles.Store(t.Files)
	p.TotalBytes.Store(t.Bytes)
	p.TotalKnown.Store(true)
}

// follow is what a source names: links given as sources are followed, those below are copied as links.
func follow(source string) (string, error) {
	to, err := filepath.EvalSymlinks(source)
	_, met := os.Stat(source)
	switch {
	case err != nil && errors.Is(met, unix.ELOOP):
		err = errRing
	case !errors.Is(err, fs.ErrNotExist):
	case there(source):
		err = errNowhere
	case strings.ContainsAny(source, "*?["):
		err = errPattern
	}
	return to, err
}

// runWalk offers everything there is, as fast as the receiver answers.
func (se *sender) runWalk() {
	defer time.AfterFunc(countAfter, se.runCount).Stop()
	id, t := uint64(0), total{}
	for i, source := range se.sources {
		top, err := follow(source)
		if err != nil {
			err = se.tell(source, err)
		} else {
			err = se.walk(i, top, &id, &t)
		}
		if err != nil {
			se.fail(err)
			return
		}
	}
	err := se.sendTotal(t, true)
	se.mu.Lock()
	se.walked = true // before it is said: the goodbye may be here first
	se.mu.Unlock()
	if err == nil {
		err = se.s.send(msgEnd, struct{}{})
	}
	if err == nil {
		err = se.s.flush()
	}
	se.fail(err)
}

// walk offers what one source names. id and t count on.
func (se *sender) walk(source int, top string, id *uint64, t *total) error {
	return visitAll(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return se.tell(file, err)
		}
		if file != top && isPart(d.Name()) {
			if err := se.tell(file, errPart); err != nil || !d.IsDir() {
				return err
			}
			return fs.SkipDir
		}
		*id++
		e, err := describe(file, d)
		if file == top && errors.Is(err, errNotCopied) {
			err = errNoFile // it was asked for
		}
		if err != nil {
			return se.tell(file, err)
		}
		if e.Kind == isFile {
			t.Files++
			t.Bytes += e.Size
		}
		e.ID, e.Source, e.Path = *id, source, below(top, file)
		e.Twin = se.met.again(filepath.Join(lastOf(se.sources[source]), e.Path))
		return se.offer(offered{entry: e, file: file})
	})
}

// below is what the walk from top added to it for a file.
func below(top, file string) string {
	switch {
	case file == top:
		return ""
	case top == ".": // the walk leaves it out
		return file
	}
	return strings.TrimPrefix(file[len(top):], "/")
}

// describe makes the entry of a file.
func describe(file string, d fs.DirEntry) (e entry, err error) {
	info, err := d.Info()
	if err != nil {
		return e, err
	}
	e.Mode, e.MTime = uint32(info.Mode().Perm()), momentOf(info.ModTime())
	switch {
	case info.Mode().IsRegular():
		e.Kind, e.Size = isFile, info.Size()
	case info.IsDir():
		e.Kind, e.Which = isDir, which(info)
		if info.Mode()&fs.ModeSticky != 0 {
			e.Mode |= unix.S_ISVTX
		}
	case info.Mode().Type() == fs.ModeSymlink:
		e.Kind = isLink
		e.Target, err = os.Readlink(file)
	default:
		err = errNotCopied
	}
	return e, err
}

// tell tells the user, and the other end, that something is not sent.
func (se *sender) tell(file string, err error) error {
	p := problem{Path: file, Why: advice(err, "read it"), Fine: errors.Is(err, errNotCopied) || errors.Is(err, errPart)}
	se.report(Problem{p.Path, p.Why, p.Fine, false})
	return se.s.send(msgProblem, p)
}

// offer sends an entry when few enough are open.
func (se *sender) offer(o offered) error {
	se.mu.Lock()
	full := func() bool { return len(se.open) >= maxOpen || len(se.wanted) >= maxOpen } // a refused file that comes unasked is in wanted only
	if full() {
		se.mu.Unlock()
		if err := se.s.flush(); err != nil {
			return err
		}
		se.mu.Lock()
	}
	for full() && se.err == nil {
		se.changed.Wait()
	}
	err := se.err
	se.open[o.ID] = o
	se.mu.Unlock()
	if err != nil {
		return err
	}
	if err := se.s.send(msgEntry, o.entry); err != nil {
		return err
	}
	if o.Kind == isFile && isAbsent(se.absent, o.entry) {
		se.mu.Lock()
		se.wanted = append(se.wanted, wanted{want{ID: o.ID}, true})
		se.changed.Broadcast()
		se.mu.Unlock()
	}
	if o.ID%64 == 1 {
		return se.s.flush()
	}
	return nil
}

// isAbsent reports whether nothing was there of an entry's source.
func isAbsent(absent []bool, e entry) bool { return e.Source < len(absent) && absent[e.Source] }
