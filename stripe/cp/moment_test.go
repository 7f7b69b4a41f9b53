package cp

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Times arrive as they are, of links too and of years that nanoseconds since 1970 do not reach.
func TestTimes(t *testing.T) {
	from, into := filepath.Join(t.TempDir(), "from"), t.TempDir()
	to := filepath.Join(into, "from")
	late := moment{Sec: time.Date(2300, 1, 2, 3, 4, 5, 0, time.UTC).Unix(), Nsec: 6}
	write(t, filepath.Join(from, "dir/file"), "content")
	if err := os.Symlink("dir/file", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]moment{"dir/file": late, "dir": late, "link": {Sec: 1000, Nsec: 5}} {
		if err := setTime(unix.AT_FDCWD, filepath.Join(from, name), at, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(from, "dir/file")); err != nil || momentOf(info.ModTime()) != late {
		t.Skipf("this file system keeps no time like that: %v, %v", info, err)
	}
	for i, kept := range []uint64{0, 1, 1} {
		p, problems, err := push(t, Options{Checksum: i == 2}, into, from)
		if err != nil || len(problems) > 0 || p.Kept.Load() != kept || p.Copied.Load() != 1-kept {
			t.Errorf("copy %d: %d copied, %d there before, %v, %v", i, p.Copied.Load(), p.Kept.Load(), problems, err)
		}
		same(t, from, to)
		// The next copy sets them again.
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		if err := errors.Join(unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(to, "link"), now, unix.AT_SYMLINK_NOFOLLOW), unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(to, "dir"), now, 0)); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // content alone counts with a checksum
			if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(to, "dir/file"), now, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}
