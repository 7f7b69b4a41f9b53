package cp

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// folderOf opens a directory below root.
func folderOf(t *testing.T, root, name string) *folder {
	t.Helper()
	r, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	var last lastFolder
	f, err := last.of(place{r, "", filepath.Join(name, "file")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { last.close(); r.Close() })
	return f
}

// Somebody puts a link in the place of a directory, or of a file in it, while files are written there. Nothing is written elsewhere.
func TestFolderIsNotLeft(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "outside/file"), "old")
	write(t, filepath.Join(dir, "to/in/other"), "")
	f := folderOf(t, filepath.Join(dir, "to"), "in")
	if err := errors.Join(os.Rename(filepath.Join(dir, "to/in"), filepath.Join(dir, "to/was")), os.Symlink("../outside", filepath.Join(dir, "to/in")),
		os.Symlink("../../outside/file", filepath.Join(dir, "to/was/file")), os.Symlink("../../outside/new", filepath.Join(dir, "to/was", partOf("part")))); err != nil {
		t.Fatal(err)
	}
	e := entry{Mode: 0o640, MTime: moment{Nsec: 5}}
	if err := create(f, "file", e, []byte("new")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a link: %v", err)
	}
	if err := f.setTime("file", moment{Nsec: 7}); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"open":      func() error { _, err := f.open("file", os.O_WRONLY); return err }(),
		"open part": func() error { _, err := openPart(f, "part", os.O_CREATE); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: follows a link", what)
		}
	}
	for _, name := range []string{"file", "fresh"} {
		in := &incoming{entry: e, place: place{f.root, "", "in/" + name}, data: []byte("new"), dir: f.enter(), isNew: true}
		if err := in.store(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "to/was", name))
		info, _ := os.Lstat(filepath.Join(dir, "to/was", name))
		if string(got) != "new" || err != nil || info.Mode() != 0o640 || info.ModTime().UnixNano() != 5 {
			t.Errorf("%s: %q, %v, %v", name, got, info, err)
		}
	}
	outside, err := os.ReadDir(filepath.Join(dir, "outside"))
	old, err2 := os.Stat(filepath.Join(dir, "outside/file"))
	if got, err3 := os.ReadFile(filepath.Join(dir, "outside/file")); len(outside) != 1 || string(got) != "old" || old.ModTime().UnixNano() == 7 || errors.Join(err, err2, err3) != nil {
		t.Errorf("outside: %v, %q, %v", outside, got, errors.Join(err, err2, err3))
	}
	inside, _ := os.ReadDir(filepath.Join(dir, "to/was"))
	if len(inside) != 4 { // file, fresh, other, and the part that is a link
		t.Errorf("%v", inside)
	}

	r, err := os.OpenRoot(filepath.Join(dir, "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := new(lastFolder).of(place{r, "", "in/file"}); err == nil {
		t.Error("a directory outside is opened")
	}
}

// Without locks two copies might write one part: then nothing is copied, and that is said once.
func TestNoLocks(t *testing.T) {
	for err, want := range map[error]bool{syscall.ENOLCK: true, syscall.ENOSYS: true, syscall.EOPNOTSUPP: true, syscall.EIO: false} {
		var said bytes.Buffer
		dir := t.TempDir()
		rc := &receiver{s: newStream(&said, nil), progress: NewProgress(func(Problem) {})}
		ended := rc.refuse(entry{ID: 1, Kind: isFile}, place{folderOf(t, dir, "").root, "", "file"}, unlocked(&fs.PathError{Op: "lock", Err: err}))
		if (ended != nil) != want || want && !strings.Contains(ended.Error(), "copy to another file system") {
			t.Errorf("%v: the copy ends with %v", err, ended)
		}
	}
}

// The far side of an interrupted copy still has the part, and cuts it short before it notices: what is told to the sender is what is
// there afterwards.
func TestPartOfAnother(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, partOf("file")), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t, dir, "")
	part, err := openPart(folder, "file", 0)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	rc := &receiver{names: []string{"file"}, open: map[uint64]*incoming{}, s: newStream(&said, nil)}
	in := &incoming{entry: entry{ID: 1, Size: 200}, place: place{folder.root, "", "file"}}
	asked := make(chan error)
	go func() { asked <- rc.ask(in) }()
	select {
	case err := <-asked:
		t.Fatalf("it read a part that another copy writes: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := part.Truncate(10); err != nil {
		t.Fatal(err)
	}
	part.release()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	defer in.drop(false)
	if in.offset != 10 {
		t.Errorf("it has %d bytes of the file, want 10", in.offset)
	}
}

// What has the name of a part and is a link is not followed.
func TestPartIsLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", filepath.Join(dir, partOf("file"))); err != nil {
		t.Fatal(err)
	}
	if _, err := openPart(folderOf(t, dir, ""), "file", os.O_CREATE); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("%v, want an error that says what to do", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "other")); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
}

// What has the name of a part and is never a file does not hold a copy up for ever.
func TestPartIsPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, partOf("file")), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t, dir, "")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := openPart(folder, "file", os.O_CREATE); err == nil || !strings.Contains(err.Error(), "remove it") || time.Since(start) > 2*lockWait {
			t.Errorf("after %v: %v, want an error that says what to do", time.Since(start), err)
		}
	})
}

// A copy that was killed between giving a part its mode and its name goes on.
func TestPartOfReadOnlyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "from")
	if err := os.WriteFile(file, []byte("content"), 0o400); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to")
	if err := os.WriteFile(filepath.Join(dir, partOf("to")), []byte("con"), 0o400); err != nil {
		t.Fatal(err)
	}
	if _, problems, err := push(t, Options{}, to, file); err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
}

// What an interrupted copy has left in a source is no file of it: copied, it would take the place of the part that is written there, or of the rest of it.
func TestPartsAreNotCopied(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "d"), t.TempDir()
	whole := bytes.Repeat([]byte("RIGHT BYTES "), 100_000)
	write(t, filepath.Join(src, "film"), string(whole))
	write(t, filepath.Join(src, partOf("film")), string(whole[:70_000]))
	write(t, filepath.Join(src, ".plait-part-of-mine"), "a file like others")
	write(t, filepath.Join(dst, "d", partOf("film")), string(whole[:500_000]))
	p, problems, err := push(t, Options{}, dst, src)
	if got, _ := os.ReadFile(filepath.Join(dst, "d/film")); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d of %d bytes, %v", len(got), len(whole), err)
	}
	if n := p.Copied.Load(); n != 2 || len(problems) != 1 || !problems[0].Fine || !strings.HasSuffix(problems[0].Path, partOf("film")) {
		t.Errorf("copied %d, told %+v; want 2, and the part", n, problems)
	}
	_, problems, err = push(t, Options{}, dst, filepath.Join(src, partOf("film"))) // asked for, it would be in the way all the same
	if _, there := os.Stat(filepath.Join(dst, partOf("film"))); err != nil || there == nil || len(problems) != 1 {
		t.Errorf("%v, told %+v, there: %v", err, problems, there)
	}
}

// A part that another user, or another name, has is not gone on with: they could change the file when it has been verified.
func TestForeignPart(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "script"), t.TempDir()
	part, mine := filepath.Join(dst, partOf("script")), filepath.Join(dst, "mine")
	write(t, src, strings.Repeat("#!/bin/sh\n", 30_000))
	write(t, mine, "")
	if err := os.Link(mine, part); err != nil {
		t.Fatal(err)
	}
	_, problems, err := push(t, Options{}, dst, src)
	if _, there := os.Stat(filepath.Join(dst, "script")); err != nil || there == nil || len(problems) != 1 || !strings.Contains(problems[0].Why, "remove it") {
		t.Errorf("%v, told %+v, there: %v", err, problems, there)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Remove(mine), os.Chown(part, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if _, problems, _ = push(t, Options{}, dst, src); len(problems) != 1 {
		t.Errorf("of another user: told %+v", problems)
	}
	if err := os.Chown(dst, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, problems, err = push(t, Options{}, dst, src); err != nil || len(problems) > 0 {
		t.Errorf("of the directory's user: %v, told %+v", err, problems)
	}
}

// A directory is copied to a name that is not there yet. The same command goes on in what it has made, and does not make another one in it.
func TestResumeNewDirectory(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "new")
	write(t, filepath.Join(from, "a"), strings.Repeat("a", 1<<20))
	write(t, filepath.Join(from, "b"), strings.Repeat("b", 4<<20))
	for way, run := range map[string]func(near net.Conn) error{
		"push": func(near net.Conn) error {
			return Push(near, []string{from}, to, Options{}, NewProgress(func(Problem) {}))
		},
		"pull": func(near net.Conn) error {
			return Pull(near, []string{from}, to, Options{}, NewProgress(func(Problem) {}))
		},
	} {
		t.Run(way, func(t *testing.T) {
			near, far := net.Pipe()
			served := make(chan struct{})
			go func() {
				_ = Serve(map[string]net.Conn{"push": far, "pull": &cutConn{far, 3 << 20}}[way], nil)
				far.Close()
				close(served)
			}()
			if err := run(map[string]net.Conn{"push": &cutConn{near, 3 << 20}, "pull": near}[way]); err == nil {
				t.Fatal("not interrupted")
			}
			near.Close()
			<-served
			again := map[string]func(*testing.T, Options, string, ...string) (*Progress, []Problem, error){"push": push, "pull": pull}[way]
			p, problems, err := again(t, Options{}, to, from)
			if err != nil || len(problems) > 0 || p.SentBytes.Load() > 3<<20 {
				t.Errorf("%d bytes sent again, %v, %v", p.SentBytes.Load(), problems, err)
			}
			same(t, from, to)
			if _, problems, err = again(t, Options{}, to, from); err != nil || len(problems) > 0 { // it is complete: as with cp(1)
				t.Errorf("%v, %v", problems, err)
			}
			same(t, from, filepath.Join(to, "src"))
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A mark that somebody else may have made counts for nothing, nor does one that a copy into a directory would have.
func TestMarksOfOthers(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "src"), t.TempDir()
	write(t, filepath.Join(from, "file"), "content")
	mark := filepath.Join(to, markOf("src"))
	write(t, mark, "")
	if !isMarked(to, []string{"src"}) || isMarked(to, []string{"src", "src"}) || isMarked(to, []string{"other"}) || isMarked(".", []string{"src"}) {
		t.Error("a mark is not what it is")
	}
	if err := os.Link(mark, filepath.Join(to, "second")); err != nil {
		t.Fatal(err)
	}
	if _, problems, err := push(t, Options{}, to, from); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	same(t, from, filepath.Join(to, "src"))
	if err := errors.Join(os.Remove(filepath.Join(to, "second")), os.Remove(mark), os.Symlink("src/file", mark)); err != nil {
		t.Fatal(err)
	}
	if isMarked(to, []string{"src"}) {
		t.Error("a link is a mark")
	}
	if os.Geteuid() != 0 {
		return // root alone can give a file to another user
	}
	write(t, filepath.Join(to, "x"), "")
	if err := errors.Join(os.Rename(filepath.Join(to, "x"), mark), os.Chown(mark, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if isMarked(to, []string{"src"}) {
		t.Error("another user's is a mark")
	}
}

// A directory that is removed while it is copied to stays so: each file that was to be in it would be waited for otherwise, as for a part that another copy has just completed.
func TestPartOfRemovedDirectory(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "in/file"), "")
	folder := folderOf(t, root, "in")
	if err := os.RemoveAll(filepath.Join(root, "in")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := openPart(folder, "file", os.O_CREATE); !errors.Is(err, fs.ErrNotExist) || time.Since(start) > lockWait/2 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// A source that cannot be opened this time costs nothing of what the copies before have brought.
func TestPartOfUnreadableSource(t *testing.T) {
	dir := t.TempDir()
	near, far := net.Pipe()
	defer near.Close()
	received := make(chan error, 1)
	to := filepath.Join(dir, "to")
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	e := entry{ID: 1, Kind: isFile, Size: 1 << 20, MTime: moment{Sec: 1e9}, Mode: 0o644}
	part := filepath.Join(to, partOf("file"))
	if err := errors.Join(os.WriteFile(part, make([]byte, 900_000), 0o600), os.Chtimes(part, time.Now(), time.Unix(e.MTime.Sec, 0))); err != nil {
		t.Fatal(err)
	}
	go func() {
		received <- runReceiver(newStream(far, nil), request{Names: []string{"file"}, To: to, Into: true}, NewProgress(func(Problem) {}))
	}()
	p := NewProgress(func(Problem) {})
	se := &sender{s: newStream(near, nil), open: map[uint64]offered{}, progress: p}
	se.changed.L = &se.mu
	heard, sent := make(chan error, 1), make(chan error, 1)
	go func() {
		err := se.runHear()
		se.fail(err)
		heard <- err
	}()
	go func() { sent <- se.runData() }()
	err := se.offer(offered{entry: e, file: filepath.Join(dir, "gone")})
	se.mu.Lock()
	se.walked = true
	se.changed.Broadcast()
	se.mu.Unlock()
	if err := errors.Join(err, se.s.send(msgEnd, struct{}{}), se.s.flush(), <-sent, <-heard, <-received); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(part); err != nil || info.Size() != 900_000 {
		t.Errorf("the part is %+v, %v", info, err)
	}
}
