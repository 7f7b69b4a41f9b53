package cp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/internal/rung"
)

// inside runs the test in a process of its own, as a user without rights who has a file system of his own. It returns true there.
func inside(t *testing.T, user int) bool {
	t.Helper()
	if os.Getenv("CP_TEST_INSIDE") != "" {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "CP_TEST_INSIDE=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("this kernel gives no user namespaces: %v", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return false
}

// write makes a file, and the directories it is in.
func write(t *testing.T, file, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// whole fails for a file that has its name and not its content.
func whole(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(to, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".plait-part-") {
			return err
		}
		rel, _ := filepath.Rel(to, file)
		got, err := os.ReadFile(file)
		if want, e := os.ReadFile(filepath.Join(from, rel)); err != nil || e != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, not as they should be; %v", rel, len(got), errors.Join(err, e))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	if !inside(t, 0) {
		return
	}
	large, small := map[string]int{"a": 1 << 20, "b": 3 << 20, "c/d": 100, "e": 1 << 20}, map[string]int{}
	for i := range 40 {
		small[fmt.Sprint("b", i)] = 100 << 10
	}
	for what, files := range map[string]map[string]int{"large": large, "small": small} {
		t.Run(what, func(t *testing.T) { diskFull(t, files) })
	}
}

func diskFull(t *testing.T, files map[string]int) {
	from, disk := filepath.Join(t.TempDir(), "from"), t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
	for name, n := range files {
		write(t, filepath.Join(from, name), string(random8(n)))
	}
	for way, run := range map[string]func() (*Progress, []Problem, error){
		"push": func() (*Progress, []Problem, error) { return push(t, Options{}, disk, from) },
		"pull": func() (*Progress, []Problem, error) { return pull(t, Options{}, disk, from) },
	} {
		if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=3m"); err != nil {
			t.Fatal(err)
		}
		_, problems, err := run()
		if err == nil || !strings.Contains(err.Error(), "/b") || !strings.Contains(err.Error(), "make room") || len(problems) > 0 {
			t.Errorf("%s: %v, %v; want one message, to make room", way, err, problems)
		}
		whole(t, from, filepath.Join(disk, "from"))
		if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=30m"); err != nil {
			t.Fatal(err)
		}
		p, problems, err := run()
		if err != nil || len(problems) > 0 || p.SentBytes.Load() > 4<<20 {
			t.Errorf("%s, with room: %d bytes sent, %v, %v", way, p.SentBytes.Load(), problems, err)
		}
		same(t, from, filepath.Join(disk, "from"))
		if err := os.RemoveAll(filepath.Join(disk, "from")); err != nil {
			t.Fatal(err)
		}
	}
}

func random8(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 8)
	}
	return b
}

func TestPermissionDenied(t *testing.T) {
	if !inside(t, 65534) {
		return
	}
	base := t.TempDir()
	from, to := filepath.Join(base, "from"), filepath.Join(base, "to")
	for _, name := range []string{"fine", "unreadable", "closed/file", "d/file", "e/deep/file", "f/part", "replaced"} {
		write(t, filepath.Join(from, name), name)
	}
	write(t, filepath.Join(to, "from/replaced"), "old")
	write(t, filepath.Join(to, "from/f", partOf("part")), "")
	for _, dir := range []string{"d", "e"} {
		if err := os.MkdirAll(filepath.Join(to, "from", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	modes := map[string]fs.FileMode{from + "/unreadable": 0, from + "/closed": 0, from + "/d": 0o500, to + "/from/replaced": 0, to + "/from/f/" + partOf("part"): 0}
	for name, mode := range modes {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	_, problems, err := push(t, Options{}, to, from)
	if err != nil || len(problems) != 2 {
		t.Errorf("%+v, %v; want two", problems, err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Path, from) || !strings.Contains(p.Why, "must be allowed to read it") {
			t.Errorf("%+v", p)
		}
	}
	whole(t, from, filepath.Join(to, "from"))
	for name := range modes {
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(name, "/closed") || strings.HasSuffix(name, "/d") {
			mode = 0o755
		}
		if err := os.Chmod(name, mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if _, problems, err := push(t, Options{}, to, from); err != nil || len(problems) > 0 {
		t.Errorf("allowed: %v, %v", problems, err)
	}
	same(t, from, filepath.Join(to, "from"))
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o555); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source, to string
		want       string
	}{{"fine", "/to", "write there"}, {"e", "/to", "nothing below it is copied"}, {"fine", "/to/new/", "write there"}} {
		_, problems, err := push(t, Options{}, base+c.to, filepath.Join(from, c.source))
		if err != nil {
			problems = append(problems, Problem{Path: err.Error(), Why: err.Error(), Far: true})
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Path, to) || !strings.Contains(problems[0].Why, c.want) || !problems[0].Far {
			t.Errorf("%s to %s: %+v; want one with %q", c.source, c.to, problems, c.want)
		}
	}
}

// whenConn does something once: before more than so many bytes are written, or when a file is asked for.
type whenConn struct {
	net.Conn
	after   int // 0: when a file is asked for
	written int
	once    sync.Once
	do      func()
}

func (c *whenConn) Write(p []byte) (int, error) {
	c.written += len(p)
	if c.after > 0 && c.written >= c.after {
		c.once.Do(c.do)
	}
	return c.Conn.Write(p)
}

func (c *whenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.after == 0 && bytes.Contains(p[:n], []byte{msgWant, 0, 0, 0}) {
		c.once.Do(c.do)
	}
	return n, err
}

// A source that changes while it is sent is told, has its name only with what it was or is, and is whole after the next copy.
func TestSourceChanges(t *testing.T) {
	const n = 2 << 20
	was, is := random8(n), bytes.Repeat([]byte("new"), n/2)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for what, c := range map[string]struct {
		after  int // bytes sent; 0: it has been offered
		change func(file string)
		want   string // of the problem
		gone   bool
	}{
		"grows": {n / 2, func(file string) {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			must(err)
			_, err = f.WriteString("more")
			must(errors.Join(err, f.Close()))
		}, "run the same command again", false},
		"shrinks":   {n / 2, func(file string) { must(os.Truncate(file, n/4)) }, "run the same command again", false},
		"rewritten": {n / 2, func(file string) { must(os.WriteFile(file, is[:n], 0o644)) }, "run the same command again", false},
		"rewritten, with its old time": {n / 2, func(file string) {
			info, err := os.Stat(file)
			must(err)
			must(os.WriteFile(file, is[:n], 0o644))
			must(os.Chtimes(file, info.ModTime(), info.ModTime()))
		}, "run the same command again", false},
		"replaced": {n / 2, func(file string) {
			must(os.WriteFile(file+"+", is, 0o644))
			must(os.Rename(file+"+", file))
		}, "", false},
		"removed":          {n / 2, func(file string) { must(os.Remove(file)) }, "", true},
		"removed before":   {0, func(file string) { must(os.Remove(file)) }, "was removed", true},
		"rewritten before": {0, func(file string) { must(os.WriteFile(file, is, 0o644)) }, "run the same command again", false},
		"a pipe before": {0, func(file string) {
			must(os.Remove(file))
			must(syscall.Mkfifo(file, 0o644))
		}, "run the same command again", true},
		"a directory before": {0, func(file string) {
			must(os.Remove(file))
			must(os.Mkdir(file, 0o755))
		}, "run the same command again", true},
		"a link before": {0, func(file string) {
			must(os.Remove(file))
			must(os.Symlink("/etc/passwd", file))
		}, "run the same command again", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
			file, copied := filepath.Join(from, "file"), filepath.Join(to, "from/file")
			write(t, file, string(was))
			near, far := net.Pipe()
			go func() { _ = Serve(far, nil); far.Close() }()
			var problems []Problem
			changed := false
			change := &whenConn{Conn: near, after: c.after, do: func() {
				time.Sleep(2 * tick)
				c.change(file)
				changed = true
			}}
			err := Push(change, []string{from}, to, Options{}, NewProgress(func(p Problem) { problems = append(problems, p) }))
			near.Close()
			if err != nil || !changed {
				t.Errorf("changed: %v, %v", changed, err)
			}
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Why, c.want) || problems[0].Path != file || problems[0].Far) {
				t.Errorf("%+v, want %q", problems, c.want)
			}
			if got, err := os.ReadFile(copied); err == nil && !bytes.Equal(got, was) && !bytes.Equal(got, is) {
				t.Errorf("%d bytes are neither what it was nor what it is", len(got))
			}
			if _, problems, err := push(t, Options{}, to, from); err != nil || slices.ContainsFunc(problems, func(p Problem) bool { return !p.Fine }) {
				t.Errorf("again: %v, %v", problems, err)
			}
			if !c.gone {
				same(t, from, filepath.Join(to, "from"))
			}
		})
	}
}

// A file server has a file for itself while its client writes: it is asked to give it up, and waited for.
func TestSourceLeased(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	file := filepath.Join(from, "file")
	write(t, file, "content")
	for _, c := range []struct {
		what  string
		after time.Duration
		want  error
	}{{"given up", 5 * leasePause, nil}, {"kept", 2 * leaseWait, errLeased}} {
		if c.want != nil && !rung.Full() {
			continue // it takes seconds
		}
		holder, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(c.after, func() { _, _ = unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_UNLCK) })
		p, problems, err := push(t, Options{}, filepath.Join(to, c.what), from)
		timer.Stop()
		if c.want == nil && (p.Copied.Load() != 1 || len(problems) > 0) || c.want != nil && (len(problems) != 1 || problems[0].Why != c.want.Error()) {
			t.Errorf("%s: %d copied, %v, %v", c.what, p.Copied.Load(), problems, err)
		}
		holder.Close()
	}
}

// Who has given up none for as long as a copy waits is not waited for again, but tried; when one is given up the next is waited for.
func TestSourcesLeased(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content")
	holder, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	lease := func(kind int) {
		if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, kind); err != nil {
			t.Error(err)
		}
	}
	lease(unix.F_WRLCK)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	spent := leaseWait + leasePause
	se, leased := &sender{waited: spent}, offered{entry: entry{MTime: momentOf(info.ModTime())}, file: file}
	if _, err := se.openFile(leased); !errors.Is(err, errLeased) || se.waited != spent {
		t.Errorf("%v, waited for %v; want %v, and %v as before", err, se.waited, errLeased, spent)
	}
	se.waited = leasePause
	given := make(chan struct{})
	time.AfterFunc(5*leasePause, func() { defer close(given); lease(unix.F_UNLCK) })
	f, err := se.openFile(leased)
	<-given
	if err != nil || se.waited != 0 {
		t.Fatalf("%v, waited for %v; want none of that to count when it is given up", err, se.waited)
	}
	f.Close()
}

// Two changes within one tick of the kernel's clock leave the same time: a file is read when that tick has passed.
func TestSourceJustWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content")
	at := time.Now()
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
	f, err := offered{entry: entry{MTime: momentOf(at)}, file: file}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if age := time.Since(at); age < tick {
		t.Errorf("open %v after the change, want %v", age, tick)
	}
}

// Clocks of files may be wrong: what is told apart is times, not before and after.
func TestWrongClocks(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	for name, at := range map[string]time.Time{"future": time.Now().AddDate(80, 0, 0), "past": time.Unix(-1e9, 5), "zero": time.Unix(0, 0)} {
		write(t, filepath.Join(from, name), name)
		if err := os.Chtimes(filepath.Join(from, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{3, 0} {
		p, problems, err := push(t, Options{}, to, from)
		if err != nil || len(problems) > 0 || p.Copied.Load() != want {
			t.Errorf("%d files copied, %v, %v", p.Copied.Load(), problems, err)
		}
		same(t, from, filepath.Join(to, "from"))
	}
}

// A file of another time is copied, also if that is what a file system of coarser times would have for the source's: this one keeps all of it.
func TestNearlySameTime(t *testing.T) {
	file, to := filepath.Join(t.TempDir(), "file"), t.TempDir()
	at := time.Unix(1e9+1, 123456789)
	for _, has := range []time.Time{time.Unix(1e9+1, 123456700), time.Unix(1e9+1, 0), time.Unix(1e9, 0), time.Unix(1e9+2, 0), at} {
		write(t, filepath.Join(to, "file"), "contenT")
		write(t, file, "content")
		if err := errors.Join(os.Chtimes(filepath.Join(to, "file"), has, has), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
		p, problems, err := push(t, Options{}, to, file)
		if copied := p.Copied.Load() > 0; err != nil || len(problems) > 0 || copied == has.Equal(at) {
			t.Errorf("there with time %v: copied %v; %v, %v", has, copied, problems, err)
		}
	}
}

// On a file system that keeps whole seconds only, what is there is not copied again, and nothing else is left.
func TestCoarseTimes(t *testing.T) {
	rung.Netns(t) // for root
	image, disk := filepath.Join(t.TempDir(), "image"), t.TempDir()
	write(t, image, "")
	if out, err := exec.Command("mkfs.ext4", "-q", "-I", "128", image, "8M").CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, disk).CombinedOutput(); err != nil {
		t.Skipf("this host mounts no ext4 from a file: %v: %s", err, out)
	}
	defer func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	file, to := filepath.Join(t.TempDir(), "file"), filepath.Join(disk, "to")
	write(t, file, "content")
	at := time.Unix(1e9, 123456789)
	if err := errors.Join(os.Chtimes(file, at, at), os.Mkdir(to, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{1, 0} {
		p, problems, err := push(t, Options{}, to, file)
		if err != nil || len(problems) > 0 || p.Copied.Load() != want {
			t.Errorf("%d files copied, want %d; %v, %v", p.Copied.Load(), want, problems, err)
		}
		if names, err := filepath.Glob(filepath.Join(to, "*")); err != nil || len(names) != 1 {
			t.Errorf("there is %q, %v", names, err)
		}
	}
}

// A directory whose place a link to another disk has is not copied there, and the user hears of the link.
func TestLinkInTheWay(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "photos/a"), "content")
	to := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(to, "photos")); err != nil {
		t.Fatal(err)
	}
	if _, problems, err := push(t, Options{}, to, filepath.Join(dir, "photos")); err != nil || len(problems) != 1 || !strings.Contains(problems[0].Why, "copy to where it leads") {
		t.Errorf("%v, %v", problems, err)
	}
}

// What the other end, or a program that uses the proxy, says cannot command the terminal, nor can a file's name pass for another line.
func TestPrintable(t *testing.T) {
	var out strings.Builder
	text := &Text{Out: &out}
	text.Problem(Problem{Path: "\x1b]0;title\a", Why: "ü\u202e\r"})
	text.Problem(Problem{Path: "a\nplait: b", Why: "c"})
	text.Say("proxy: \x1b[2J.example:80: refused\nthe far side")
	text.Say((&endedError{path: "a\nplait: b", why: "c"}).Error())
	if got := out.String(); got != "plait: ?]0;title?: ü??\nplait: a?plait: b: c\nplait: proxy: ?[2J.example:80: refused\nthe far side\nplait: a?plait: b: c\n" {
		t.Errorf("%q", got)
	}
}
