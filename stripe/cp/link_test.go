package cp

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A link takes the place of a file or another link at once: where it cannot be made, as on FAT, what was there stays.
func TestLinkReplaces(t *testing.T) {
	dir := t.TempDir()
	rc := &receiver{s: newStream(struct {
		io.Reader
		io.Writer
	}{nil, io.Discard}, nil), progress: NewProgress(func(Problem) {}), open: map[uint64]*incoming{}, dirs: map[string]directory{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	rc.writeBelow(root, []string{"."})
	defer rc.close()
	if err := rc.takeEntry(entry{ID: 1, Kind: isDir, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("kept"), 0o644), os.Symlink("before", at("link")), os.Mkdir(at("dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	names := []string{"file", "link", "dir"}
	offer := func(name, target string) uint64 {
		before := rc.progress.Failures()
		if err := rc.takeEntry(entry{ID: rc.lastID + 1, Path: name, Kind: isLink, Target: target}); err != nil {
			t.Fatal(err)
		}
		return rc.progress.Failures() - before
	}
	never := strings.Repeat("x", 5000) // no file system takes it
	for _, name := range names {
		if offer(name, never) != 1 {
			t.Errorf("%s: no problem is told", name)
		}
	}
	b, _ := os.ReadFile(at("file"))
	if to, _ := os.Readlink(at("link")); string(b) != "kept" || to != "before" {
		t.Errorf("after links that could not be made, the file has %q, the link leads to %q", b, to)
	}
	// A copy that was killed between the two steps has left this.
	if err := os.Symlink("killed", at(linkPartOf("link"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range names[:2] {
		if n := offer(name, "now"); n != 0 {
			t.Errorf("%s: %d problems", name, n)
		}
		if to, err := os.Readlink(at(name)); to != "now" {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	var there []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if !slices.Equal(there, []string{"dir", "file", "link"}) || err != nil {
		t.Errorf("%q are there, %v", there, err)
	}
}
