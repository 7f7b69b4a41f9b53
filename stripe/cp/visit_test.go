package cp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// A directory may have a million names, of each of which the walk keeps some bytes.
func TestWalkOfMany(t *testing.T) {
	rung.Netns(t) // it mounts
	const many, most = 200_000, 50
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	for i := range many {
		if err := syscall.Mknod(filepath.Join(dir, fmt.Sprintf("IMG_2026_%08d_holiday.jpg", i)), syscall.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	se := &sender{s: newStream(&struct {
		io.Reader
		io.Writer
	}{nil, io.Discard}, nil), sources: []string{dir}, progress: NewProgress(func(Problem) {}), open: map[uint64]offered{}}
	se.changed.L = &se.mu
	ended := make(chan struct{})
	defer close(ended)
	go func() { // the receiver has everything
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
			se.mu.Lock()
			clear(se.open)
			se.changed.Broadcast()
			se.mu.Unlock()
		}
	}()
	before, peak, id, found := held(), 0, uint64(0), total{}
	walked := make(chan error, 1)
	go func() { walked <- se.walk(0, dir, &id, &found) }()
	for over := false; !over; {
		select {
		case err := <-walked:
			if over = true; err != nil || found.Files != many {
				t.Errorf("%d files, %v", found.Files, err)
			}
		case <-time.After(10 * time.Millisecond):
		}
		peak = max(peak, held()-before)
	}
	runtime.KeepAlive(se)
	t.Logf("%d bytes for each of %d names", peak/many, many)
	if peak > most*many {
		t.Errorf("%d bytes for each name, want %d at most", peak/many, most)
	}
}

// forgetful is a directory of a file system that does not tell what its entries are: every third is removed between its reading and the look at it, which ReadDir leaves out.
type forgetful struct {
	fs.ReadDirFile
	left int
}

func (d *forgetful) ReadDir(n int) (some []fs.DirEntry, err error) {
	if d.left == 0 {
		return nil, io.EOF
	}
	for ; n > 0 && d.left > 0; n, d.left = n-1, d.left-1 {
		if d.left%3 != 0 {
			some = append(some, nil)
		}
	}
	return some, nil
}

// Files that are removed while a directory is read do not end its reading.
func TestReadWhileRemoved(t *testing.T) {
	for name, all := range map[string]int{"empty": 0, "three": 3, "small": 99, "in two parts": 3 * visitAtOnce, "in three": 3*visitAtOnce + 3} {
		t.Run(name, func(t *testing.T) {
			dir := &forgetful{left: all}
			found := 0
			for {
				some, err := readSome(dir)
				if found += len(some); errors.Is(err, io.EOF) {
					break
				}
				if err != nil || len(some) != visitAtOnce {
					t.Fatalf("%d entries, %v", len(some), err)
				}
			}
			if want := all - all/3; found != want {
				t.Errorf("%d entries, want %d", found, want)
			}
		})
	}
}

// Another user who may write to a directory puts a link in its place, between its listing and its opening, or that of a file in it: what that leads to is not read.
func TestSourceIsNotLeft(t *testing.T) {
	top, err := follow(t.TempDir())
	elsewhere := t.TempDir()
	in := filepath.Join(top, "in")
	err = errors.Join(err, os.Mkdir(in, 0o700), os.WriteFile(filepath.Join(in, "file"), []byte("ours"), 0o600), os.WriteFile(filepath.Join(elsewhere, "file"), []byte("else"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	told := false
	err = visitAll(top, func(file string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			told = errors.Is(err, errChanged)
		case file == in:
			return errors.Join(os.Rename(in, in+"-"), os.Symlink(elsewhere, in))
		case filepath.Dir(file) == in:
			t.Errorf("%s is listed", file)
		}
		return nil
	})
	if err != nil || !told {
		t.Errorf("the walk ends with %v, and has told of a change: %v", err, told)
	}
	f, err := offered{file: filepath.Join(in, "file")}.open()
	if !errors.Is(err, errChanged) {
		t.Errorf("what a link leads to is opened: %v", err)
	}
	if err == nil {
		f.Close()
	}
}
