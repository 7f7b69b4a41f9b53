package cp

import (
	"bytes"
	"math"
	"reflect"
	"testing"
)

// What is sent is what is read, and nothing shorter or longer is taken for it.
func TestMessages(t *testing.T) {
	roundTrip(t, msgRequest, request{Send: true, Sources: []string{"a", "", "~/\xff"}, Names: []string{}, To: "/", Checksum: true, Absent: []bool{true, false}})
	roundTrip(t, msgEntry, entry{ID: math.MaxUint64, Source: -1, Path: "ü\n\xff", Kind: isFile, Mode: math.MaxUint32, Size: math.MaxInt64, MTime: math.MinInt64})
	roundTrip(t, msgWant, want{ID: 1, Sum: []byte{0, 1}})
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
