package cp

import (
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
	root *os.Root
	name string // below root
}

func (p place) String() string { return join(p.root.Name(), p.name) }

// base is its name in its directory.
func (p place) base() string { return path.Base(p.name) }

// source is where what is offered of one goes: below the destination, and once its directory is there below that. A link in it must not lead to what is beside it.
type source struct {
	place
	begun bool
	lost  string // the last directory that could not be made, below root
}

// at is where an entry of it goes.
func (s *source) at(e entry) place { return place{s.root, path.Join(s.name, e.Path)} }

// takes reports whether an entry may come now: the first is what was named itself, and what comes later is in it.
func (s *source) takes(e entry) bool {
	if e.Path == "" {
		return !s.begun && e.Kind != isLink // the sender has followed those
	}
	return s.begun && e.Path != "." && e.Path == path.Clean(e.Path) && filepath.IsLocal(e.Path) && len(e.Path) <= maxPath && (s.name == "." || s.lost != "")
}

// loses reports whether an entry is in a directory that could not be made.
func (s *source) loses(p place) bool {
	return s.lost != "" && strings.HasPrefix(p.name, s.lost+"/")
}

// descend goes into its directory.
func (s *source) descend() error {
	if s.name == "." {
		return nil
	}
	below, err := s.root.OpenRoot(s.name)
	if err == nil {
		s.place = place{below, "."}
	}
	return err
}

// openDestination opens the directory to write below, and gives the sources their names in it, as cp(1) does. It says whether the user named what the only source is to be; then
// the directory is the one that is in, or itself, if an interrupted copy has made it.
func openDestination(to string, names []string, into bool) (root *os.Root, in []string, named bool, err error) {
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
