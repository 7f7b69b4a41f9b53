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
