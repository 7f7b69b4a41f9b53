package cp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A copy into its own source would have no end: what has come is found and offered, too. The two ends need not know each other for one host, so the sender says which
// one a directory is, and the receiver which ones it writes in.

var errWithin = errors.New("is in the directory that is to be copied, so that the copy would have no end; copy to another directory")

// kernel is what no other host has, until it boots anew.
var kernel = sync.OnceValue(func() []byte {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return id
})

// which tells one directory from all others of this host and of others; nothing where that cannot be told.
func which(info fs.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || len(kernel()) == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", kernel(), s.Dev, s.Ino))
	return string(sum[:16])
}

// around are a directory and those it is in.
func around(root *os.Root) (all []string) {
	dir, err := root.Open(".")
	if err != nil {
		return nil
	}
	defer func() { dir.Close() }()
	for last := ""; ; {
		info, err := dir.Stat()
		if err != nil || which(info) == last { // / is in itself
			return all
		}
		last = which(info)
		all = append(all, last)
		fd, err := unix.Openat(int(dir.Fd()), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return all
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), "..")
	}
}
