package cp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// runCount tells how much there is, as soon as it is known.
func (se *sender) runCount() {
	var t total
	for _, source := range se.sources {
		_ = filepath.WalkDir(follow(source), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					t.Files++
					t.Bytes += info.Size()
				}
			}
			return nil
		})
	}
	se.progress.total(t)
	if se.s.send(msgTotal, t) == nil {
		_ = se.s.flush()
	}
}

func (p *Progress) total(t total) {
	p.TotalFiles.Store(t.Files)
	p.TotalBytes.Store(t.Bytes)
	p.TotalKnown.Store(true)
}

// follow is what a source names: links given as sources are followed, those below are copied as links.
func follow(source string) string {
	if to, err := filepath.EvalSymlinks(source); err == nil {
		return to
	}
	return source
}

// runWalk offers everything there is, as fast as the receiver answers.
func (se *sender) runWalk() {
	id := uint64(0)
	for i, source := range se.sources {
		top := follow(source)
		err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			rel, relErr := filepath.Rel(top, file)
			if rel == "." {
				rel = ""
			}
			switch {
			case err != nil:
				return se.tell(file, err)
			case relErr != nil:
				return se.tell(file, relErr)
			}
			id++
			e, err := describe(file, d)
			if err != nil {
				return se.tell(file, err)
			}
			e.ID, e.Source, e.Path = id, i, filepath.ToSlash(rel)
			return se.offer(offered{e, file})
		})
		if err != nil {
			se.fail(err)
			return
		}
	}
	err := se.s.flush()
	se.mu.Lock()
	se.walked = true
	se.mu.Unlock()
	se.fail(err)
}

// describe makes the entry of a file.
func describe(file string, d fs.DirEntry) (e entry, err error) {
	info, err := d.Info()
	if err != nil {
		return e, err
	}
	e.Mode, e.MTime = uint32(info.Mode().Perm()), info.ModTime().UnixNano()
	switch {
	case info.Mode().IsRegular():
		e.Kind, e.Size = isFile, info.Size()
	case info.IsDir():
		e.Kind = isDir
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
	p := problem{Path: file, Why: advice(err, "read it"), Fine: errors.Is(err, errNotCopied)}
	se.progress.tell(Problem{p.Path, p.Why, p.Fine, false})
	return se.s.send(msgProblem, p)
}

// offer sends an entry when few enough are open.
func (se *sender) offer(o offered) error {
	se.mu.Lock()
	if len(se.open) >= maxOpen {
		se.mu.Unlock()
		if err := se.s.flush(); err != nil {
			return err
		}
		se.mu.Lock()
	}
	for len(se.open) >= maxOpen && se.err == nil {
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
	if o.ID%64 == 1 {
		return se.s.flush()
	}
	return nil
}
