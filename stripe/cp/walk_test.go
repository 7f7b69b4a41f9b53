package cp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A receiver that is slow to answer hears how much there is long before the last file is offered.
func TestTotalComesEarly(t *testing.T) {
	from := t.TempDir()
	for i := range maxOpen + 10 {
		write(t, filepath.Join(from, fmt.Sprint(i)), "12345")
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		p := NewProgress(func(Problem) {})
		go func() { _ = Push(near, []string{from}, "to", Options{}, p) }()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		time.Sleep(countAfter / 2)
		synctest.Wait()
		if p.TotalKnown.Load() {
			t.Error("counted at once")
		}
		time.Sleep(countAfter)
		synctest.Wait()
		if p.TotalFiles.Load() != maxOpen+10 || p.TotalBytes.Load() != 5*(maxOpen+10) {
			t.Errorf("%d files, %d bytes", p.TotalFiles.Load(), p.TotalBytes.Load())
		}
		near.Close()
		far.Close()
	})
}

// What the walk has found at its end is the truth: a count that was slower, and saw other files, does not take its place.
func TestSlowCount(t *testing.T) {
	var sent bytes.Buffer
	se := &sender{s: newStream(&sent, nil), progress: NewProgress(func(Problem) {})}
	for _, c := range []struct {
		total
		last bool
		want uint64
	}{{total{Files: 5, Bytes: 50}, false, 5}, {total{Files: 7, Bytes: 70}, true, 7}, {total{Files: 6, Bytes: 60}, false, 7}} {
		if err := se.sendTotal(c.total, c.last); err != nil || se.progress.TotalFiles.Load() != c.want || se.progress.TotalBytes.Load() != 10*int64(c.want) {
			t.Errorf("%+v: %d files, %d bytes, %v", c, se.progress.TotalFiles.Load(), se.progress.TotalBytes.Load(), err)
		}
	}
	if n := bytes.Count(sent.Bytes(), []byte{msgTotal, 0, 0}); n != 2 {
		t.Errorf("%d of them were sent", n)
	}
}

// A count that goes on when the copy has ended changes nothing that its caller has.
func TestCountAfterTheEnd(t *testing.T) {
	from := t.TempDir()
	write(t, filepath.Join(from, "x"), "12345")
	se := &sender{s: newStream(new(bytes.Buffer), nil), sources: []string{from}, progress: NewProgress(func(Problem) {})}
	se.end()
	se.runCount()
	if se.progress.TotalKnown.Load() {
		t.Errorf("%d files", se.progress.TotalFiles.Load())
	}
}

func TestBelow(t *testing.T) {
	for _, c := range [][3]string{{".", ".", ""}, {".", "a/b", "a/b"}, {"/", "/a", "a"}, {"..", "../a", "a"}, {"d", "d/a/b", "a/b"}, {"/d", "/d", ""}} {
		if got := below(c[0], c[1]); got != c[2] {
			t.Errorf("%s below %s: %q, want %q", c[1], c[0], got, c[2])
		}
	}
}

// What is above a link is that of the directory it leads to, for sources and destinations, and for the names of sources, as it is for all other programs.
func TestAboveLink(t *testing.T) {
	for _, c := range []struct{ source, to, want string }{
		{"current/../log", "d", "d/log"},
		{"current/../log", "new", "new"},
		{"current/../log", "current/..", "releases/log"},
		{"current/../log", "current/../new", "releases/new"},
		{"current/../log", "current/../new/", "releases/new/log"},
		{"current/../log", "current/../42", "releases/42/log"},
		{"current/../log", "current/../old/old", "releases/old/old"},
		{"current/../.", "d", "d/releases/log"},
		{"current/../42/..", "new", "new/log"},
		{"dir", "part/../begun", "parts/begun/log"},
	} {
		for way, run := range map[string]func(*testing.T, Options, string, ...string) (*Progress, []Problem, error){"push": push, "pull": pull} {
			if way == "pull" && lastOf(c.source) == ".." {
				continue // it has no name there
			}
			t.Run(way+" "+c.source+" to "+c.to, func(t *testing.T) {
				t.Chdir(t.TempDir())
				for name, content := range map[string]string{"releases/log": "above", "releases/42/x": "", "releases/old/old": "", "log": "beside", "d/x": "", "dir/log": "above", "parts/1/x": "", "parts/begun/" + markOf("dir"): ""} {
					write(t, name, content)
				}
				if err := errors.Join(os.Symlink("releases/42", "current"), os.Symlink("parts/1", "part")); err != nil {
					t.Fatal(err)
				}
				_, problems, err := run(t, Options{}, c.to, c.source)
				if err != nil || len(problems) > 0 {
					t.Error(problems, err)
				}
				if got, err := os.ReadFile(c.want); string(got) != "above" {
					t.Errorf("%q, %v", got, err)
				}
				if got, err := os.ReadFile("log"); string(got) != "beside" {
					t.Errorf("the other one has become %q, %v", got, err)
				}
			})
		}
	}
}

// Setuid and setgid of files are not copied, as nobody's ownership is: they would give the receiver's rights away. A directory is no more open than its
// source, and one that is shared at the destination stays so.
func TestSpecialModes(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	write(t, filepath.Join(from, "open/program"), "1")
	write(t, filepath.Join(from, "group/file"), "2")
	write(t, filepath.Join(to, "from/group/file"), "3")
	if err := errors.Join(os.Chmod(filepath.Join(from, "open/program"), 0o755|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), os.Chmod(filepath.Join(from, "open"), 0o777|fs.ModeSticky|fs.ModeSetgid),
		os.Mkdir(filepath.Join(from, "group/new"), 0o750), os.Chmod(filepath.Join(to, "from/group"), 0o775|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	if _, problems, err := push(t, Options{}, to, from); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	for name, want := range map[string]fs.FileMode{"open": 0o777 | fs.ModeSticky, "open/program": 0o755, "group": 0o755 | fs.ModeSetgid, "group/new": 0o750 | fs.ModeSetgid} {
		info, err := os.Stat(filepath.Join(to, "from", name))
		if err != nil || info.Mode()&^fs.ModeDir != want {
			t.Errorf("%s has %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// scp would have expanded the pattern: who gives one is told that nobody does here.
func TestPatternIsAName(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "[1].txt"), "its name")
	p, problems, err := pull(t, Options{}, to, filepath.Join(from, "*.txt"), filepath.Join(from, "[1].txt"))
	if err != nil || p.Copied.Load() != 1 || len(problems) != 1 || problems[0].Why != errPattern.Error() || !problems[0].Far {
		t.Errorf("%d copied, %+v, %v", p.Copied.Load(), problems, err)
	}
}

// Of links that lead to each other is said that they do, and not which function of Go's found it.
func TestLinksInARing(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if err := errors.Join(os.Symlink(b, a), os.Symlink(a, b)); err != nil {
		t.Fatal(err)
	}
	if _, err := follow(a); !errors.Is(err, errRing) {
		t.Errorf("%v; want %v", err, errRing)
	}
}

// Files of the kernel's own say a size that is not that of what is read from them: none of it, or of a page. They are no files to copy, and did not change.
func TestSizeOfNothing(t *testing.T) {
	to := t.TempDir()
	for _, file := range []string{"/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		if !there(file) {
			continue
		}
		p, problems, err := push(t, Options{}, to, file)
		if err != nil || p.Copied.Load() != 0 || len(problems) != 1 || problems[0].Why != errNoSize.Error() || there(filepath.Join(to, filepath.Base(file))) {
			t.Errorf("%s: %d copied, %+v, %v", file, p.Copied.Load(), problems, err)
		}
	}
}

// A walk that something slow has held up says nothing more once the copy has failed: who asked for it has gone on, and may have closed what problems are written to.
func TestLateProblem(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	var told atomic.Int64
	p := NewProgress(func(Problem) {
		told.Add(1)
		time.Sleep(5 * time.Millisecond)
	})
	missing := make([]string, 100)
	for i := range missing {
		missing[i] = filepath.Join(t.TempDir(), "missing")
	}
	if err := runSender(newStream(near, nil), missing, nil, p); err == nil {
		t.Fatal("the copy has not failed")
	}
	before := told.Load()
	time.Sleep(100 * time.Millisecond)
	if now := told.Load(); now != before {
		t.Errorf("%d problems told after the end, and %d before", now-before, before)
	}
}
