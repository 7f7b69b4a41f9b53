package cp

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// A directory may have a million names, of each of which the walk keeps some bytes.
func TestWalkOfMany(t *testing.T) {
	rung.Netns(t) // it mounts
	const many, most = 200_000, 50
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	for i := range many {
		if err := syscall.Mknod(filepath.Join(dir, fmt.Sprintf("IMG_2026_%08d_holiday.jpg", i)), syscall.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	se := &sender{s: newStream(&struct {
		io.Reader
		io.Writer
	}{nil, io.Discard}, nil), sources: []string{dir}, progress: NewProgress(func(Problem) {}), open: map[uint64]offered{}}
	se.changed.L = &se.mu
	ended := make(chan struct{})
	defer close(ended)
	go func() { // the receiver has everything
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
			se.mu.Lock()
			clear(se.open)
			se.changed.Broadcast()
			se.mu.Unlock()
		}
	}()
	before, peak, id, found := held(), 0, uint64(0), total{}
	walked := make(chan error, 1)
	go func() { walked <- se.walk(0, dir, &id, &found) }()
	for over := false; !over; {
		select {
		case err := <-walked:
			if over = true; err != nil || found.Files != many {
				t.Errorf("%d files, %v", found.Files, err)
			}
		case <-time.After(10 * time.Millisecond):
		}
		peak = max(peak, held()-before)
	}
	runtime.KeepAlive(se)
	t.Logf("%d bytes for each of %d names", peak/many, many)
	if peak > most*many {
		t.Errorf("%d bytes for each name, want %d at most", peak/many, most)
	}
}
