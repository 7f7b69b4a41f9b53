package cp

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a file's time. File systems keep some that nanoseconds since 1970 in 64 bits do not hold: those before 1678 and after 2262.
type moment struct {
	_    struct{} `cbor:",toarray"`
	Sec  int64    // since 1970
	Nsec int64    // 0 to 999,999,999
}

func momentOf(t time.Time) moment { return moment{Sec: t.Unix(), Nsec: int64(t.Nanosecond())} }

func momentAt(ts unix.Timespec) moment {
	return moment{Sec: int64(ts.Sec), Nsec: int64(ts.Nsec)} //nolint:unconvert // 32 bits on some architectures
}

func (m moment) time() time.Time { return time.Unix(m.Sec, m.Nsec) }

// isOne is false of what utimensat(2) would take for an order (UTIME_NOW, UTIME_OMIT), or refuse.
func (m moment) isOne() bool { return m.Nsec >= 0 && m.Nsec < int64(time.Second) }
