package stripe

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A reader that pauses fills the window, all links go, and it reads on meanwhile: the first path that is back tells the writer that there is room again.
func TestReaderGoesOnWithoutPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, pause = 20 << 20, 10 * time.Second
		link := simPath{mbps: 80, delay: 5e6, queue: 75000}
		s := newSimSession(t, link)
		defer s.close()
		go func() {
			_, _ = s.near.Write(make([]byte, size))
			_ = s.near.CloseWrite()
		}()
		time.Sleep(pause) // all that the window holds has come, and is acknowledged
		s.wires[0].Close()
		time.AfterFunc(time.Second, func() { s.add(t, link) })
		_ = s.far.SetReadDeadline(time.Now().Add(pause))
		if n, err := io.Copy(io.Discard, s.far); n != size || err != nil {
			t.Errorf("%d of %d bytes were read: %v", n, size, err)
		}
	})
}

// backlogWire tells, as TCP's does, that more than a record is here.
type backlogWire struct{ *simWire }

func (b backlogWire) buffered() bool {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	return len(b.in.arrived) > maxFrame+512
}

// A chunk is acknowledged that came before a backlog of other frames, in which none follows.
func TestAcknowledgesBeforeBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t)
		defer s.close()
		near, far := simLink(8, time.Millisecond, 75000)
		near.in.arrived = appendData(nil, 0, []byte("x"))
		for range 2 * maxFrame / headerBytes {
			near.in.arrived = appendNumbers(near.in.arrived, framePong, 0)
		}
		if _, err := s.near.attach(backlogWire{near}, hello{Path: 1, Link: "l"}, Policy{}, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		_ = far.SetReadDeadline(time.Now().Add(time.Second))
		for {
			f, err := readFrame(far, make([]byte, maxFrame))
			if err != nil {
				t.Fatal("no acknowledgement in a second")
			}
			if n, err := readNumbers(f.kind, f.body, 4); f.kind == frameAck && err == nil && n[0] == 1 {
				return
			}
		}
	})
}
