package cp

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
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
	dir, err := openSource(file, unix.O_DIRECTORY)
	if err != nil {
		return visit(file, d, err)
	}
	defer dir.Close()
	for more := true; more; {
		some, err := readSome(dir)
		if more = err == nil; !more {
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

// readSome reads up to visitAtOnce entries, and less at the end of a directory only. ReadDir may give less before, without an error: on file systems that do not tell what an entry
// is, it looks at each, and leaves out what has been removed meanwhile.
func readSome(dir fs.ReadDirFile) (some []fs.DirEntry, err error) {
	for err == nil && len(some) < visitAtOnce {
		var next []fs.DirEntry
		next, err = dir.ReadDir(visitAtOnce - len(some))
		some = append(some, next...)
	}
	return some, err
}

// openSource opens a file or directory for reading. Neither it nor a directory on the way to it is a link, as they were not when it was found: whoever may change a directory could
// have this user's other files copied by a link in its place. That is openat2(2), which Linux has since 5.6 and some sandboxes have not.
func openSource(file string, flags int) (f *os.File, err error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_LARGEFILE
	err = call("open", file, func() error {
		fd, err := unix.Openat2(unix.AT_FDCWD, file, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_SYMLINKS})
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			fd, err = unix.Open(file, flags, 0)
		}
		if err == nil {
			f = os.NewFile(uintptr(fd), file)
		}
		return err
	})
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) { // there is a link now, or a file
		err = errChanged
	}
	return f, err
}
