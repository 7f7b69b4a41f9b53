package cp

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
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

func TestBelow(t *testing.T) {
	for _, c := range [][3]string{{".", ".", ""}, {".", "a/b", "a/b"}, {"/", "/a", "a"}, {"..", "../a", "a"}, {"d", "d/a/b", "a/b"}, {"/d", "/d", ""}} {
		if got := below(c[0], c[1]); got != c[2] {
			t.Errorf("%s below %s: %q, want %q", c[1], c[0], got, c[2])
		}
	}
}
