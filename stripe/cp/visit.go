package cp

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// visitAtOnce is how many entries of a directory are in memory: it may have millions, and filepath.WalkDir reads them all before the first one.
const visitAtOnce = 4096

// visitAll visits what there is from top on, as [filepath.WalkDir] does, in the order of names where a directory has no more than visitAtOnce. Only one that has more is kept open
// meanwhile.
func visitAll(top string, visit fs.WalkDirFunc) error {
	info, err := os.Lstat(top)
	if err != nil {
		return visit(top, nil, err)
	}
	return visitFrom(top, fs.FileInfoToDirEntry(info), visit)
}

func visitFrom(file string, d fs.DirEntry, visit fs.WalkDirFunc) error {
	err := visit(file, d, nil)
	if errors.Is(err, fs.SkipDir) || err == nil && !d.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(file)
	if err != nil {
		return visit(file, d, err)
	}
	defer dir.Close()
	for more := true; more; {
		some, err := dir.ReadDir(visitAtOnce)
		if more = len(some) == visitAtOnce; !more {
			dir.Close()
		}
		slices.SortFunc(some, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
		for _, d := range some {
			if err := visitFrom(filepath.Join(file, d.Name()), d, visit); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return visit(file, d, err)
		}
	}
	return nil
}
