package cp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory that is copied into itself is refused, by whatever way the destination leads into it: what the receiver makes there would be offered, too, and so on. What is
// beside it is copied.
func TestIntoItself(t *testing.T) {
	for name, c := range map[string]struct {
		source, to string
		into       string // where what is beside comes to
	}{
		"below":             {"top", "top/z/in/", "top/z/in"},
		"a new name":        {"top", "top/z/new", ""},
		"itself":            {"top", "top/", "top"},
		"by a link":         {"top", "link/in/", "top/z/in"},
		"without a name":    {"top/.", "top/z/in", ""},
		"by a parent's dot": {"top/z/..", "top/z/in/", "top/z/in"},
	} {
		t.Run(name, func(t *testing.T) {
			for way, do := range map[string]func(*testing.T, Options, string, ...string) (*Progress, []Problem, error){"push": push, "pull": pull} {
				if way == "pull" && c.source == "top/z/.." { // has no name there
					continue
				}
				t.Chdir(t.TempDir())
				for _, dir := range []string{"top/a", "top/z/in"} {
					if err := os.MkdirAll(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				for i := range 3 {
					write(t, fmt.Sprintf("top/a/%d", i), "content")
				}
				write(t, "beside", "content")
				if err := os.Symlink("top/z", "link"); err != nil {
					t.Fatal(err)
				}
				sources := []string{c.source}
				if c.into != "" {
					sources = append(sources, "beside")
				}
				p, problems, err := do(t, Options{}, c.to, sources...)
				if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Why, errWithin.Error()) || int(p.Copied.Load()) != len(sources)-1 {
					t.Errorf("%s: %v, %d copied, %v", way, err, p.Copied.Load(), problems)
				}
				if _, err := os.Stat(filepath.Join(c.into, "beside")); err != nil {
					t.Errorf("%s: %v", way, err)
				}
				files := 0
				_ = filepath.WalkDir(".", func(string, fs.DirEntry, error) error { files++; return nil })
				if most := 3 + 7 + len(sources) - 1; files != most {
					t.Errorf("%s: there are %d files and directories, want %d", way, files, most)
				}
			}
		})
	}
}

// A directory is copied beside itself, under another name and in one that begins as its own, and onto itself.
func TestBesideItself(t *testing.T) {
	for _, to := range []string{"new", "top2/", "."} {
		t.Chdir(t.TempDir())
		for _, dir := range []string{"top/a", "top2"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, "top/a/file", "content")
		if p, problems, err := push(t, Options{}, to, "top"); err != nil || len(problems) > 0 || p.Files.Load() != 1 {
			t.Errorf("to %s: %v, %v", to, err, problems)
		}
		if _, err := os.Stat("top/top"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("to %s: %v", to, err)
		}
	}
}
