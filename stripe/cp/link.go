package cp

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// makeLink makes a symbolic link with the same target, wherever that leads: nothing is written through it. What it takes the place of stays
// until there is a link: FAT has none, and some file systems take short targets only.
func (rc *receiver) makeLink(to place, e entry) error {
	if rc.isTwin(e, to) {
		return errTwin
	}
	same := false
	err := to.in(func(root *os.Root) error {
		old, err := root.Readlink(to.name)
		if same = err == nil && old == e.Target; same {
			return nil
		}
		return placeLink(root, to.name, e.Target)
	})
	if err == nil {
		err = rc.dateLink(to, e.MTime)
	}
	if same { // somebody else may have made it
		return nil
	}
	return err
}

// dateLink sets a link's own time, where the file system keeps one.
func (rc *receiver) dateLink(to place, at moment) error {
	dir, err := rc.asking.of(to)
	if err == nil {
		err = dir.setTime(to.base(), at)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func placeLink(root *os.Root, name, target string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return root.Symlink(target, name)
	}
	if info.IsDir() {
		return errors.New("a directory is in the way of a link")
	}
	if t := info.Mode().Type(); t != 0 && t != fs.ModeSymlink {
		return errInTheWay
	}
	made := path.Join(path.Dir(name), linkPartOf(path.Base(name)))
	err = root.Symlink(target, made)
	if errors.Is(err, fs.ErrExist) { // of a copy that was killed
		if err = root.Remove(made); err == nil {
			err = root.Symlink(target, made)
		}
	}
	if err != nil {
		return err
	}
	if err = root.Rename(made, name); err != nil {
		_ = root.Remove(made)
	}
	return err
}

// linkPartOf is what a link is called until it takes the place of what is there. No file has that part: no name has a slash.
func linkPartOf(name string) string { return partOf(name + "/") }
