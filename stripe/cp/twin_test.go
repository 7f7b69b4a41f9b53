package cp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a file system that does not tell upper from lower case, two names would be one copy: one is copied, and the other told, whether both are new there or not.
func TestTwins(t *testing.T) {
	dir := t.TempDir()
	from, other := filepath.Join(dir, "from"), filepath.Join(dir, "other/FROM")
	write(t, filepath.Join(from, "README"), "first")
	write(t, filepath.Join(from, "Rab/in between"), "1")
	write(t, filepath.Join(from, "Readme"), "second")
	write(t, filepath.Join(from, "Photos/a"), "2")
	write(t, filepath.Join(from, "photos/a"), "3")
	write(t, other, "4")
	to := t.TempDir()
	if _, problems, err := push(t, Options{}, to, from, other); err != nil || len(problems) > 0 { // it tells them apart
		t.Fatalf("%v, %v", problems, err)
	}
	same(t, from, filepath.Join(to, "from"))
	to = t.TempDir()
	for in, name := range map[string]string{"from": "Readme", "from/": "photos", ".": "FROM"} { // what a file system that folds would find by the name of a part
		write(t, filepath.Join(to, in, strings.ToUpper(partOf(name))), "")
	}
	for i, pulled := range []bool{false, false, true} {
		copies := push
		if pulled {
			copies = pull
		}
		p, problems, err := copies(t, Options{}, to, from, other)
		if kept := p.Kept.Load(); err != nil || len(problems) != 3 || kept != map[bool]uint64{true: 3}[i > 0] || p.Copied.Load() != 3-kept {
			t.Errorf("copy %d: %d copied, %d there before, %+v, %v", i, p.Copied.Load(), kept, problems, err)
		}
		for _, problem := range problems {
			if !strings.HasPrefix(problem.Why, errTwin.Error()) || problem.Fine {
				t.Errorf("copy %d: %+v", i, problem)
			}
		}
		for name, want := range map[string]bool{"from/README": true, "from/Readme": false, "from/Photos/a": true, "from/photos": false, "FROM": false} {
			if is := there(filepath.Join(to, name)); is != want {
				t.Errorf("copy %d: %s is there: %v", i, name, is)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(to, "*/.plait-part-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// What two sources have is not at one place because both are written with a dot.
func TestNoTwinsBelowDots(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(from, name, "x"), name)
		write(t, filepath.Join(to, name, strings.ToUpper(partOf("x"))), "")
	}
	for _, copies := range []func(*testing.T, Options, string, ...string) (*Progress, []Problem, error){push, pull} {
		p, problems, err := copies(t, Options{}, to, from+"/a/.", from+"/b/.")
		if n := p.Copied.Load() + p.Kept.Load(); err != nil || len(problems) > 0 || n != 2 {
			t.Errorf("%d copied or there, %+v, %v", n, problems, err)
		}
	}
}

// Two sources of one name are refused before anything of the first is there, whoever asks: a program has no command line to be checked.
func TestSourcesOfOneName(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(from, name, "x"), name)
	}
	for _, copies := range []func(*testing.T, Options, string, ...string) (*Progress, []Problem, error){push, pull} {
		p, _, err := copies(t, Options{}, to, from+"/a/x", from+"/b/x")
		if left, _ := os.ReadDir(to); err == nil || !strings.Contains(err.Error(), "two sources") || p.Copied.Load() > 0 || len(left) > 0 {
			t.Errorf("%d copied, %v, %v", p.Copied.Load(), left, err)
		}
	}
}
