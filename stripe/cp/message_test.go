package cp

import (
	"bytes"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// What is sent is what is read, and nothing shorter or longer is taken for it.
func TestMessages(t *testing.T) {
	roundTrip(t, msgRequest, request{Send: true, Sources: []string{"a", "", "~/\xff"}, Names: []string{}, To: "/", Checksum: true, Absent: []bool{true, false}})
	roundTrip(t, msgEntry, entry{ID: math.MaxUint64, Source: -1, Path: "ü\n\xff", Kind: isFile, Mode: math.MaxUint32, Size: math.MaxInt64, MTime: moment{Sec: math.MinInt64, Nsec: 999_999_999}})
	roundTrip(t, msgWant, want{ID: 1, Sum: []byte{0, 1}})
}

// A command line may name more files than the library's own limit; more than it can name are no request.
func TestManyNames(t *testing.T) {
	for n, ok := range map[int]bool{600_000: true, maxNames + 1: false} {
		var made bytes.Buffer
		if err := message(&made, msgRequest, request{Names: make([]string, n)}); err != nil {
			t.Fatal(err)
		}
		if got, err := decode[request](msgRequest, made.Bytes()[headBytes:]); (err == nil) != ok || ok && len(got.Names) != n {
			t.Errorf("of %d names %d are read, %v; want that they can be: %v", n, len(got.Names), err, ok)
		}
	}
}

func roundTrip[T any](t *testing.T, kind byte, sent T) {
	t.Helper()
	var made bytes.Buffer
	if err := message(&made, kind, sent); err != nil {
		t.Fatal(err)
	}
	b := made.Bytes()[headBytes:]
	if got, err := decode[T](kind, b); err != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("%+v is read as %+v, %v", sent, got, err)
	}
	for n := range b {
		if got, err := decode[T](kind, b[:n]); err == nil {
			t.Errorf("%d bytes of %d are read as %+v", n, len(b), got)
		}
	}
	if got, err := decode[T](kind, append(b, 0)); err == nil {
		t.Errorf("one byte more is read as %+v", got)
	}
}

// Whatever is taken for a message is one that could have been sent.
func FuzzMessages(f *testing.F) {
	var made bytes.Buffer
	if err := message(&made, msgEntry, entry{ID: 1, Path: "a", Kind: isDir}); err != nil {
		f.Fatal(err)
	}
	f.Add(made.Bytes()[headBytes:])
	f.Add([]byte{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // an array without end
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decode[request](msgRequest, b); err == nil {
			roundTrip(t, msgRequest, r)
		}
		if e, err := decode[entry](msgEntry, b); err == nil {
			roundTrip(t, msgEntry, e)
		}
		if d, err := decode[done](msgDone, b); err == nil {
			roundTrip(t, msgDone, d)
		}
		if w, err := decode[want](msgWant, b); err == nil {
			roundTrip(t, msgWant, w)
		}
	})
}

// lateWrites notes until when its user may write.
type lateWrites struct {
	net.Conn
	until time.Time
}

func (c *lateWrites) SetWriteDeadline(at time.Time) error {
	c.until = at
	return c.Conn.SetWriteDeadline(at)
}

// Why the far side gives up may still have to go when links are back: its connection takes that, and waits for it.
func TestLastWordMayGo(t *testing.T) {
	near, far := net.Pipe()
	conn := &lateWrites{Conn: far}
	served := make(chan error, 1)
	go func() { served <- Serve(conn, nil) }()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content")
	if err := Push(near, []string{file}, "/dev/null/none", Options{}, NewProgress(func(Problem) {})); err == nil {
		t.Error("copied below a device")
	}
	near.Close()
	if err := <-served; err != nil || !conn.until.IsZero() {
		t.Errorf("%v; nothing can be written after %v", err, conn.until)
	}
}
