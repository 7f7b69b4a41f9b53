package cp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// place is where an entry goes.
type place struct {
	root *os.Root // the destination
	top  string   // of a source, the directory in it that a link must not lead out of; empty: there is none yet
	name string   // below that
}

func (p place) String() string { return join(join(p.root.Name(), cmp.Or(p.top, ".")), p.name) }

// base is its name in its directory.
func (p place) base() string { return path.Base(p.name) }

// in does something in the directory that the name is below. It is opened for that: there may be more sources than files that a process may have open.
func (p place) in(do func(root *os.Root) error) error {
	if p.top == "" {
		return do(p.root)
	}
	top, err := p.root.OpenRoot(p.top)
	if err != nil {
		return err
	}
	defer top.Close()
	return do(top)
}

// source is where what is offered of one goes: below the destination, and once its directory is there below that. A link in it must not lead to what is beside it.
type source struct {
	place
	begun bool
	lost  string // the last directory that could not be made
}

// at is where an entry of it goes.
func (s *source) at(e entry) place { return place{s.root, s.top, path.Join(s.name, e.Path)} }

// takes reports whether an entry may come now: the first is what was named itself, and what comes later is in it.
func (s *source) takes(e entry) bool {
	if e.Path == "" {
		return !s.begun && e.Kind != isLink // the sender has followed those
	}
	return s.begun && e.Path != "." && e.Path == path.Clean(e.Path) && filepath.IsLocal(e.Path) && len(e.Path) <= maxPath && (s.name == "." || s.lost != "")
}

// loses reports whether an entry is in a directory that could not be made.
func (s *source) loses(p place) bool {
	return s.lost == "." || s.lost != "" && strings.HasPrefix(p.name, s.lost+"/")
}

// descend goes into its directory.
func (s *source) descend() error {
	if s.name == "." {
		return nil
	}
	below := place{s.root, s.name, "."}
	err := below.in(func(*os.Root) error { return nil })
	if err == nil {
		s.place = below
	}
	return err
}

// openDestination opens the directory to write below, and gives the sources their names in it, as cp(1) does. It says whether the user named what the only source is to be; then
// the directory is the one that is in, or itself, if an interrupted copy has made it.
func openDestination(to string, names []string, into bool) (root *os.Root, in []string, named bool, err error) {
	if to, err = destination(to); err != nil {
		return nil, nil, false, err
	}
	met := make(map[string]bool, len(names))
	for _, n := range names {
		if !filepath.IsLocal(n) || strings.Contains(n, "/") {
			return nil, nil, false, fmt.Errorf("%q is no name for a file", n)
		}
		if met[n] {
			return nil, nil, false, fmt.Errorf("two sources have the name %q, and the second would take the place of the first: copy them one after the other, to different places", n)
		}
		met[n] = true
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
