package cp

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A sender that tells of one directory again and again, or of where one leads, takes no memory.
func TestRepeatedDirectory(t *testing.T) {
	receive := func(times int, all ...entry) (*receiver, error) {
		rc := &receiver{s: newStream(struct {
			io.Reader
			io.Writer
		}{nil, io.Discard}, nil), progress: NewProgress(func(Problem) {}), open: map[uint64]*incoming{}, dirs: map[string]directory{}}
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		rc.writeBelow(root, []string{"x"})
		defer rc.close()
		for i := range times {
			e := all[min(i, len(all)-1)]
			e.ID = uint64(i + 1)
			if err := rc.takeEntry(e); err != nil {
				return rc, err
			}
		}
		return rc, rc.finishDirs()
	}
	if rc, err := receive(1000, entry{Kind: isDir, Mode: 0o755}, entry{Path: "y", Kind: isDir, Mode: 0o755}); err != nil || len(rc.dirs) != 2 {
		t.Errorf("%d directories are kept, %v", len(rc.dirs), err)
	}
	for _, kind := range []entryKind{isDir, isFile} {
		if _, err := receive(1, entry{Kind: kind, Mode: 0o755, Target: "somewhere"}); !errors.Is(err, errBroken) {
			t.Errorf("a %s that leads somewhere: %v", kind, err)
		}
	}
}

// What waits for its data takes memory for its name alone, and that is as long as one may be: 2048 of 64 KB would be twice what a connection may hold.
func TestLongNames(t *testing.T) {
	var sent bytes.Buffer
	s := newStream(&sent, nil)
	_ = s.send(msgEntry, entry{ID: 1, Kind: isDir, Mode: 0o755})
	_ = s.send(msgEntry, entry{ID: 2, Path: strings.Repeat("x", maxPath+1), Kind: isFile, Size: 1})
	_ = s.flush()
	p := NewProgress(func(Problem) {})
	err := runReceiver(newStream(struct {
		io.Reader
		io.Writer
	}{&sent, io.Discard}, nil), request{Names: []string{"x"}, To: t.TempDir(), Into: true}, p)
	if !errors.Is(err, errBroken) {
		t.Errorf("of a sender: %v", err)
	}
	_ = s.send(msgWant, want{ID: 1, Offset: 1, Sum: make([]byte, sha256.Size+1)})
	_ = s.flush()
	se := &sender{s: newStream(&sent, nil), open: map[uint64]offered{}, progress: p}
	se.changed.L = &se.mu
	if err := se.runHear(); !errors.Is(err, errBroken) {
		t.Errorf("of a receiver: %v", err)
	}
}

// offering is a sender that does as it likes: it offers entries, and sends "x" of the third.
func offering(entries []entry) net.Conn {
	near, far := net.Pipe()
	go func() {
		s := newStream(far, nil)
		var buf []byte
		_, _, _ = s.next(&buf)
		for _, e := range entries {
			_ = s.send(msgEntry, e)
		}
		_ = s.send(msgBegin, begin{ID: 3})
		sendBytes(s, "x")
		_ = s.send(msgDone, done{Sum: crc32.Checksum([]byte("x"), castagnoli)})
		_ = s.send(msgEnd, struct{}{})
		_ = s.flush()
		_, _ = io.Copy(io.Discard, far)
	}()
	return near
}

// Links that lead out of the destination are not followed: out of a directory that was there, or beside a new one. Nor is anything put below what is no directory, and a source is never a link: the sender has followed those.
func TestLinksAreNotFollowed(t *testing.T) {
	way := []entry{{ID: 1, Kind: isDir, Mode: 0o755}, {ID: 2, Path: "way", Kind: isLink, Target: "../outside"}, {ID: 3, Path: "way/in", Kind: isFile, Mode: 0o644, Size: 1}}
	far := slices.Clone(way)
	far[1].Target = "/tmp"
	for name, c := range map[string]struct {
		to      string
		entries []entry
	}{
		"out of one that was there": {"to/", []entry{way[0], {ID: 2, Path: "way", Kind: isLink, Target: "../../outside"}, way[2]}},
		"beside a new one":          {"new", way},
		"far from a new one":        {"new", far},
		"instead of a new one":      {"new", []entry{{ID: 1, Kind: isLink, Target: "outside"}, {ID: 3, Path: "in", Kind: isFile, Mode: 0o644, Size: 1}}},
		"later":                     {"new", []entry{way[0], {ID: 2, Kind: isLink, Target: "outside"}, {ID: 3, Path: "in", Kind: isFile, Mode: 0o644, Size: 1}}},
		"instead of what goes in":   {"to/", []entry{{ID: 1, Kind: isLink, Target: "../outside"}, {ID: 3, Path: "in", Kind: isFile, Mode: 0o644, Size: 1}}},
		"without one":               {"new", []entry{{ID: 3, Path: "in", Kind: isFile, Mode: 0o644, Size: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			outside := filepath.Join(dir, "outside")
			for _, d := range []string{outside, filepath.Join(dir, "to")} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			near := offering(c.entries)
			var problems []Problem
			err := Pull(near, []string{"x"}, dir+"/"+c.to, Options{}, NewProgress(func(p Problem) { problems = append(problems, p) }))
			near.Close()
			if found, _ := os.ReadDir(outside); len(found) > 0 || len(problems) == 0 && !errors.Is(err, errBroken) {
				t.Errorf("%v outside; %v, %v", found, problems, err)
			}
			if found, _ := os.ReadDir(dir); len(found) > 3 {
				t.Errorf("beside the destination: %v", found)
			}
			for _, name := range []string{"new", "to/x"} {
				if to, err := os.Readlink(filepath.Join(dir, name)); err == nil {
					t.Errorf("%s is a link to %s", name, to)
				}
			}
		})
	}
}

// A link that stays in the destination, but leaves what is copied, leads to files of the user's, as does a name that is none; and where the sender has a source's directory looked at
// before it is there, what is looked at afterwards is in it, not beside it.
func TestSourceStaysInItsDirectory(t *testing.T) {
	top := entry{ID: 1, Kind: isDir, Mode: 0o755, Twin: true}
	now := momentOf(time.Unix(1_000_000_000, 0))
	for name, c := range map[string]struct {
		to      string
		entries []entry
	}{
		"by a link":               {"to/", []entry{top, {ID: 2, Path: "l", Kind: isLink, Target: ".."}, {ID: 3, Path: "l/.bashrc", Kind: isFile, Size: 1}}},
		"by a link over two":      {"to/", []entry{top, {ID: 2, Path: "l", Kind: isLink, Target: "../y"}, {ID: 3, Path: "l/in", Kind: isFile, Size: 1}}},
		"as itself":               {"to/", []entry{{ID: 1, Path: ".", Kind: isLink, Target: "."}, {ID: 3, Path: ".bashrc", Kind: isFile, Size: 1}}},
		"later":                   {"to/", []entry{top, {ID: 2, Path: ".", Kind: isLink, Target: "."}, {ID: 3, Path: ".bashrc", Kind: isFile, Size: 1}}},
		"by a name that is none":  {"to/", []entry{top, {ID: 2, Path: "x/../l", Kind: isLink, Target: ".."}, {ID: 3, Path: "l/.bashrc", Kind: isFile, Size: 1}}},
		"a new one, by its time":  {"to/new", []entry{top, {ID: 2, Path: ".bashrc", Kind: isLink, Target: "x", MTime: now}}},
		"a new one, by its place": {"to/new", []entry{top, {ID: 2, Path: ".", Kind: isDir, Mode: 0o755}, {ID: 3, Path: ".bashrc", Kind: isFile, Size: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "to/.bashrc"), "good")
			write(t, filepath.Join(dir, "to/y/in"), "good")
			near := offering(c.entries)
			err := Pull(near, []string{"x"}, dir+"/"+c.to, Options{}, NewProgress(func(Problem) {}))
			near.Close()
			for _, file := range []string{"to/.bashrc", "to/y/in"} {
				info, _ := os.Stat(filepath.Join(dir, file))
				if got, _ := os.ReadFile(filepath.Join(dir, file)); string(got) != "good" || info.ModTime().Equal(now.time()) {
					t.Errorf("%s has %q, of %v; %v", file, got, info.ModTime(), err)
				}
			}
			if to, err := os.Readlink(filepath.Join(dir, "to/x")); err == nil {
				t.Errorf("the source's directory is a link to %s", to)
			}
		})
	}
}

// What cannot be written is named by where it was to go, also below a source's directory.
func TestProblemsAreNamed(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "x/in/file"), "new")
	write(t, filepath.Join(to, "x/in/file/there"), "")
	_, problems, err := push(t, Options{}, to, from+"/x")
	if want := filepath.Join(to, "x/in/file"); err != nil || len(problems) != 1 || problems[0].Path != want {
		t.Errorf("%+v, %v, want one of %s", problems, err, want)
	}
}
