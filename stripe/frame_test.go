package stripe

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func appendData(b []byte, number uint64, payload []byte) []byte {
	frame := append(make([]byte, dataHeader), payload...)
	putDataHeader(frame, number)
	return append(b, frame...)
}

func TestFrames(t *testing.T) {
	b := appendData(nil, 1<<40, []byte("chunk"))
	b = appendNumbers(b, frameAck, 1, 2, 3, 4)
	b = appendFrame(b, frameClose, nil)
	r := bytes.NewReader(b)
	buf := make([]byte, maxFrame)
	f, err := readFrame(r, buf)
	if err != nil || f.kind != frameData || f.number != 1<<40 || string(f.body) != "chunk" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = readFrame(r, buf)
	if n, e := readNumbers(f.kind, f.body, 4); err != nil || e != nil || n != [4]uint64{1, 2, 3, 4} {
		t.Errorf("%v, %v, %v", n, err, e)
	}
	if f, err = readFrame(r, buf); err != nil || f.kind != frameClose || len(f.body) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err = readFrame(r, buf); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, err = readFrame(bytes.NewReader(b[:9]), buf); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendData(nil, 5, []byte("x")))
	f.Add(appendNumbers(nil, framePing, 7))
	f.Add([]byte{frameData, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		buf := make([]byte, maxFrame)
		for {
			fr, err := readFrame(r, buf)
			if err != nil {
				return
			}
			again := appendFrame(nil, fr.kind, fr.body)
			if fr.kind == frameData {
				again = appendData(nil, fr.number, fr.body)
			}
			if at := len(b) - r.Len(); !bytes.Equal(again, b[at-len(again):at]) {
				t.Fatalf("%x reads as %+v, which is written %x", b, fr, again)
			}
		}
	})
}

// A peer that has a key may still send anything. It can end the session, not this process.
func FuzzSession(f *testing.F) {
	f.Add(appendData(nil, 0, []byte("x")), appendNumbers(nil, frameAck, 1, 1, 700, 0))
	f.Add(appendData(nil, 3, nil), appendData(nil, 2, []byte("y")))
	f.Add(appendFrame(nil, frameGone, []byte{0, 0, 0, 1}), appendFrame(nil, frameLinks, []byte(`[{"Link":"x","Addrs":["1.2.3.4:5"]}]`)))
	f.Add(appendNumbers(nil, frameAck, 1<<62, 1<<62, 1<<62, 1<<62), appendFrame(nil, frameClose, []byte("no")))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := newSimSession(t)
			defer s.close()
			for i, b := range [][]byte{one, two} {
				near, far := simLink(1000, time.Millisecond, 1<<20)
				if _, err := s.near.attach(near, hello{Path: uint32(i + 1), Link: "l"}, Policy{}, time.Millisecond); err != nil {
					t.Fatal(err)
				}
				_, _ = far.Write(b)
				defer far.Close()
			}
			_ = s.near.SetDeadline(time.Now().Add(time.Second))
			_, _ = s.near.Write(make([]byte, 100000))
			_, _ = s.near.Read(make([]byte, 100000))
			if s.near.in.held > maxWindow*maxFrame || len(s.near.in.ring) > maxWindow {
				t.Errorf("holds %d bytes in %d slots", s.near.in.held, len(s.near.in.ring))
			}
		})
	})
}

// A peer that sends single bytes out of order must not make this end hold a large buffer for each.
func TestSmallChunksHoldLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t)
		defer s.close()
		near, far := simLink(10000, time.Millisecond, 10<<20)
		p, err := s.near.attach(near, hello{Path: 1, Link: "l"}, Policy{}, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		held := func() int64 { // what other tests have left is none of it
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := held()
		for n := uint64(1); n < startWindow; n++ {
			_, _ = far.Write(appendData(nil, n, []byte{1}))
		}
		time.Sleep(time.Second)
		grown := held() - before
		s.near.mu.Lock()
		arrived := p.arrived
		s.near.mu.Unlock()
		if arrived != startWindow-1 || grown > startWindow*maxFrame/4 {
			t.Errorf("%d chunks of a byte hold %d bytes", arrived, grown)
		}
	})
}
