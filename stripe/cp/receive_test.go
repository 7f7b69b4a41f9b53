package cp

import (
	"errors"
	"io"
	"os"
	"testing"
)

// A sender that tells of one directory again and again, or of where one leads, takes no memory.
func TestRepeatedDirectory(t *testing.T) {
	receive := func(e entry, times int) (*receiver, error) {
		rc := &receiver{s: newStream(struct {
			io.Reader
			io.Writer
		}{nil, io.Discard}, nil), progress: NewProgress(func(Problem) {}), names: []string{"x"}, open: map[uint64]*incoming{}, dirs: map[string]directory{}}
		var err error
		if rc.root, err = os.OpenRoot(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		defer rc.root.Close()
		for range times {
			e.ID++
			if err := rc.takeEntry(e); err != nil {
				return rc, err
			}
		}
		return rc, rc.finishDirs()
	}
	if rc, err := receive(entry{Kind: isDir, Mode: 0o755}, 1000); err != nil || len(rc.dirs) != 1 {
		t.Errorf("%d directories are kept, %v", len(rc.dirs), err)
	}
	for _, kind := range []entryKind{isDir, isFile} {
		if _, err := receive(entry{Kind: kind, Mode: 0o755, Target: "somewhere"}, 1); !errors.Is(err, errBroken) {
			t.Errorf("a %s that leads somewhere: %v", kind, err)
		}
	}
}
