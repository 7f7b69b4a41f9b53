package cp

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// push copies through a pipe and returns what went wrong.
func push(t *testing.T, opt Options, to string, sources ...string) (*Progress, []Problem, error) {
	t.Helper()
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(far, nil)
		far.Close()
		served <- err
	}()
	var problems []Problem
	p := NewProgress(func(p Problem) { problems = append(problems, p) })
	err := Push(near, sources, to, opt, p)
	near.Close()
	if err := <-served; err != nil {
		t.Log(err)
	}
	return p, problems, err
}

func pull(t *testing.T, opt Options, to string, sources ...string) (*Progress, []Problem, error) {
	t.Helper()
	near, far := net.Pipe()
	go func() { _ = Serve(far, nil); far.Close() }()
	var problems []Problem
	p := NewProgress(func(p Problem) { problems = append(problems, p) })
	err := Pull(near, sources, to, opt, p)
	near.Close()
	return p, problems, err
}

// tree makes files of all kinds and returns their directory.
func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	r := rand.New(rand.NewPCG(1, 1))
	write := func(name string, n int, mode fs.FileMode) {
		file := filepath.Join(dir, name)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("empty", 0, 0o644)
	write("small", 5, 0o600)
	write("no text \xff", 5, 0o600)
	write("exact", dataBytes, 0o755)
	write("large", 3*dataBytes+17, 0o444)
	for i := range many() {
		write(fmt.Sprintf("many/%d/file %d", i%7, i), i, 0o644)
	}
	write("sealed/inside", 10, 0o400)
	if err := os.Mkdir(filepath.Join(dir, "hollow"), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "small", "out": "/etc/passwd", "broken": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sealed"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "sealed"), 0o755) })
	return dir
}

// same compares two trees, times and modes included.
func same(t *testing.T, a, b string) {
	t.Helper()
	list := func(dir string) map[string]string {
		out := map[string]string{}
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dir, file)
			line := info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				content, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				line += fmt.Sprint(info.ModTime()) + string(content)
			case d.Type() == fs.ModeSymlink:
				to, _ := os.Readlink(file)
				line += fmt.Sprint(info.ModTime()) + to
			case rel != ".":
				line += fmt.Sprint(info.ModTime())
			}
			out[rel] = line
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, got := list(a), list(b)
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %.60q, want %.60q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

func TestPushAndPullTrees(t *testing.T) {
	t.Parallel()
	from := tree(t)
	to := t.TempDir()
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(to, "tree/sealed"), 0o755)
		_ = os.Chmod(filepath.Join(to, "other/sealed"), 0o755)
	})
	p, problems, err := push(t, Options{}, to, from)
	if err != nil || len(problems) > 0 || p.Copied.Load() != uint64(many()+6) {
		t.Fatalf("%d files, %v, %v", p.Copied.Load(), problems, err)
	}
	same(t, from, filepath.Join(to, "tree"))
	if !p.TotalKnown.Load() || p.Bytes.Load() != p.TotalBytes.Load() || p.Files.Load() != p.TotalFiles.Load() {
		t.Errorf("%d of %d bytes, %d of %d files", p.Bytes.Load(), p.TotalBytes.Load(), p.Files.Load(), p.TotalFiles.Load())
	}
	if p, problems, err = pull(t, Options{}, filepath.Join(to, "other"), filepath.Join(to, "tree")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	same(t, from, filepath.Join(to, "other"))
	if p.Bytes.Load() != p.TotalBytes.Load() {
		t.Errorf("%d of %d bytes", p.Bytes.Load(), p.TotalBytes.Load())
	}
	if p, _, err = push(t, Options{}, to, from); err != nil || p.SentBytes.Load() != 0 || p.Kept.Load() != uint64(many()+6) {
		t.Errorf("a second time: %d bytes sent, %d files kept, %v", p.SentBytes.Load(), p.Kept.Load(), err)
	}
}

func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("file", []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, want, err string }{
		{"new", "new", ""},
		{"new", "new", ""},
		{"made/", "made/file", ""},
		{"made", "made/file", ""},
		{"file/", "", "no directory"},
		{"a/b/c", "", "no such file"},
		{"a/..", "", "make a first"},
		{"file/.", "", "not a directory"},
	} {
		_, problems, err := push(t, Options{}, c.to, "file")
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.to) {
				t.Errorf("to %s: %v, want %q", c.to, err, c.err)
			}
			continue
		}
		if got, readErr := os.ReadFile(c.want); string(got) != "content" || readErr != nil || err != nil || len(problems) > 0 {
			t.Errorf("to %s: %q, %v, %v, %v", c.to, got, readErr, problems, err)
		}
	}
}

// A device, as /dev/null is, or a pipe is not replaced; a link to one is not, where it was named as the destination.
func TestDevicesStay(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	write(t, filepath.Join(from, "pipe"), "content")
	if err := errors.Join(os.Symlink("pipe", filepath.Join(from, "too")), os.Mkdir(filepath.Join(to, "from"), 0o755), syscall.Mkfifo(filepath.Join(to, "from/pipe"), 0o600),
		syscall.Mkfifo(filepath.Join(to, "from/too"), 0o600), os.Symlink("from/pipe", filepath.Join(to, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{"link", "from/pipe"} {
		if _, _, err := push(t, Options{}, filepath.Join(to, named), filepath.Join(from, "pipe")); !strings.Contains(fmt.Sprint(err), errInTheWay.Error()) {
			t.Errorf("to %s: %v", named, err)
		}
	}
	if _, problems, err := push(t, Options{}, to, from); err != nil || len(problems) != 2 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, name := range []string{"from/pipe", "from/too", "link"} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
			t.Errorf("%s has become %v, %v", name, info.Mode(), err)
		}
	}
}

func TestProblemsKeepOthersFromNothing(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(to, "b"), 0o755); err != nil { // in the way
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(from, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink("nowhere", filepath.Join(from, "dangling")); err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, name := range []string{"a", "b", "dangling", "none", "socket", "c"} {
		sources = append(sources, filepath.Join(from, name))
	}
	p, problems, err := push(t, Options{}, to, sources...)
	if err != nil || len(problems) != 4 || p.Failures() != 4 || p.Copied.Load() != 2 {
		t.Errorf("%+v, %d failures, %v", problems, p.Failures(), err)
	}
	if there(filepath.Join(to, "dangling")) {
		t.Error("a link that was to be followed is copied")
	}
	for _, name := range []string{"a", "c"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); string(b) != name || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// cut is a connection that ends after so many bytes.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.left < len(p) {
		n, _ := c.Conn.Write(p[:c.left])
		c.left = 0
		c.Conn.Close()
		return n, io.ErrClosedPipe
	}
	c.left -= len(p)
	return c.Conn.Write(p)
}

func TestResume(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	data := make([]byte, 4<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	file := filepath.Join(from, "file")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() { _ = Serve(far, nil); far.Close(); close(served) }()
		if err := Push(&cutConn{near, 3 << 20}, []string{file}, to, Options{}, NewProgress(func(Problem) {})); err == nil {
			t.Fatal("not interrupted")
		}
		<-served
	}
	interrupt()
	if _, err := os.Stat(filepath.Join(to, "file")); err == nil {
		t.Error("half a file has the name of the whole")
	}
	p, problems, err := push(t, Options{}, to, file)
	if got, _ := os.ReadFile(filepath.Join(to, "file")); err != nil || len(problems) > 0 || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v, %v", len(got), problems, err)
	}
	if sent := p.SentBytes.Load(); sent > 2<<20 {
		t.Errorf("sent %d bytes again", sent)
	}
	entries, _ := os.ReadDir(to)
	if len(entries) != 1 {
		t.Errorf("%v is left", entries)
	}

	// The source is another one now: what is there of the old one is of no use.
	if err := os.Remove(filepath.Join(to, "file")); err != nil {
		t.Fatal(err)
	}
	interrupt()
	data[100]++
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	p, problems, err = push(t, Options{}, to, file)
	if got, _ := os.ReadFile(filepath.Join(to, "file")); err != nil || len(problems) > 0 || !bytes.Equal(got, data) || p.SentBytes.Load() != 4<<20 {
		t.Errorf("%d bytes, %d sent, %v, %v", len(got), p.SentBytes.Load(), problems, err)
	}
}

func TestChecksum(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	a, b := filepath.Join(from, "f"), filepath.Join(to, "f")
	at := time.Unix(1000, 5)
	for file, content := range map[string]string{a: "right", b: "wrong"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(how, want string, sent int64, kept uint64, p *Progress, problems []Problem, err error) {
		t.Helper()
		if got, _ := os.ReadFile(b); string(got) != want || p.SentBytes.Load() != sent || err != nil || len(problems) > 0 {
			t.Errorf("%s: %q, %d bytes sent, %v, %v", how, got, p.SentBytes.Load(), problems, err)
		}
		if p.Kept.Load() != kept || p.Copied.Load() != 1-kept || p.Bytes.Load() != 5 {
			t.Errorf("%s: %d files there before, %d copied, %d bytes; want %d, %d, 5", how, p.Kept.Load(), p.Copied.Load(), p.Bytes.Load(), kept, 1-kept)
		}
	}
	for _, c := range []struct {
		opt  Options
		want string
		sent int64
		kept uint64
	}{{Options{}, "wrong", 0, 1}, {Options{Checksum: true}, "right", 5, 0}, {Options{Checksum: true}, "right", 0, 1}} {
		p, problems, err := push(t, c.opt, to, a)
		check(fmt.Sprintf("%+v", c.opt), c.want, c.sent, c.kept, p, problems, err)
	}
	p, problems, err := pull(t, Options{Checksum: true}, to, a)
	check("pull", "right", 0, 1, p, problems, err)
}

// A sender may send anything. Nothing appears outside of the destination.
func TestHostileSender(t *testing.T) {
	for _, c := range []entry{
		{ID: 1, Path: "../escape", Kind: isFile},
		{ID: 1, Path: "/escape", Kind: isFile},
		{ID: 1, Path: "a/../../escape", Kind: isDir},
		{ID: 1, Source: 1, Kind: isFile},
		{ID: 1, Source: -1, Kind: isFile},
		{ID: 1, Size: -1, Kind: isFile},
		{ID: 1, MTime: moment{Nsec: 1<<30 - 1}, Kind: isDir}, // UTIME_NOW
		{ID: 1, Kind: "device"},
	} {
		near, far := net.Pipe()
		go func() {
			s := newStream(far, nil)
			var buf []byte
			_, _, _ = s.next(&buf)
			_ = s.send(msgEntry, c)
			_ = s.flush()
			_, _, _ = s.next(&buf)
			far.Close()
		}()
		dir := t.TempDir()
		if err := Pull(near, []string{"x"}, filepath.Join(dir, "in")+"/", Options{}, NewProgress(func(Problem) {})); err == nil {
			t.Errorf("%+v is taken", c)
		}
		if found, _ := os.ReadDir(dir); len(found) != 1 {
			t.Errorf("%+v makes %v", c, found)
		}
		near.Close()
	}
}

// What came with another sum than it was sent with does not get its name, and is not kept to go on from.
func TestWrongSum(t *testing.T) {
	for _, sum := range []uint32{crc32.Checksum([]byte("right"), castagnoli), crc32.Checksum([]byte("wrong"), castagnoli)} {
		dir := t.TempDir()
		var sent bytes.Buffer
		s := newStream(&sent, nil)
		_ = s.send(msgEntry, entry{ID: 1, Kind: isFile, Mode: 0o644, Size: 5})
		_ = s.send(msgBegin, begin{ID: 1})
		sendBytes(s, "right")
		_ = s.send(msgDone, done{Sum: sum})
		_ = s.send(msgEnd, struct{}{})
		_ = s.flush()
		p := NewProgress(func(Problem) {})
		if err := runReceiver(newStream(struct {
			io.Reader
			io.Writer
		}{&sent, io.Discard}, nil), request{Names: []string{"x"}, To: dir, Into: true}, p); err != nil {
			t.Fatal(err)
		}
		found, _ := os.ReadDir(dir)
		if right := sum == crc32.Checksum([]byte("right"), castagnoli); (p.Copied.Load() == 1) != right || (p.Failures() == 0) != right || (len(found) == 1) != right {
			t.Errorf("sum %x: %d copied, %d problems, %v", sum, p.Copied.Load(), p.Failures(), found)
		}
	}
}

func FuzzReceiver(f *testing.F) {
	var whole bytes.Buffer
	s := newStream(&whole, nil)
	_ = s.send(msgEntry, entry{ID: 1, Kind: isDir, Mode: 0o755})
	_ = s.send(msgEntry, entry{ID: 2, Path: "way", Kind: isLink, Target: "/"})
	_ = s.send(msgEntry, entry{ID: 3, Path: "file", Kind: isFile, Mode: 0o644, Size: 1})
	_ = s.send(msgBegin, begin{ID: 3})
	sendBytes(s, "x")
	_ = s.send(msgDone, done{Sum: crc32.Checksum([]byte("x"), castagnoli)})
	_ = s.send(msgEnd, struct{}{})
	_ = s.flush()
	f.Add(whole.Bytes())
	f.Add([]byte{msgData, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		_ = runReceiver(newStream(rw, nil), request{Names: []string{"x"}, To: filepath.Join(dir, "to"), Into: true}, NewProgress(func(Problem) {}))
		if found, _ := os.ReadDir(dir); len(found) != 1 {
			t.Errorf("%v", found)
		}
	})
}

// sendBytes writes some of a file.
func sendBytes(s *stream, data string) {
	_, _ = s.w.Write(append([]byte{msgData, 0, 0, 0, byte(len(data))}, data...))
}

// The part of a file that the sender cannot read on ends before the message in which that showed: what it has is filled up with zeros.
func TestBrokenOffKeepsWhatWasRead(t *testing.T) {
	var sent bytes.Buffer
	s := newStream(&sent, nil)
	_ = s.send(msgEntry, entry{ID: 1, Kind: isFile, Size: 10, Mode: 0o644})
	_ = s.send(msgBegin, begin{ID: 1})
	sendBytes(s, "12345")
	sendBytes(s, "67\x00")
	_ = s.send(msgDone, done{Broken: true})
	_ = s.send(msgEnd, struct{}{})
	_ = s.flush()
	dir := t.TempDir()
	if err := runReceiver(newStream(struct {
		io.Reader
		io.Writer
	}{&sent, io.Discard}, nil), request{Names: []string{"x"}, To: dir, Into: true}, NewProgress(func(Problem) {})); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, partOf("x"))); string(b) != "12345" {
		t.Errorf("the part has %q, %v", b, err)
	}
}
