package daemon

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	logLines  = 1000        // wait at most for a log that takes none
	lastLines = time.Second // is how long the end of plait waits for it
)

// spool is a log that keeps nobody waiting, as who writes to it may hold what the heartbeat needs: a pipe takes nothing when its reader has stopped. Lines it has no
// room for are left out, and counted.
type spool struct {
	to    io.Writer
	lines chan []byte   // nil is the last
	ended chan struct{} // closed when that is reached

	mu   sync.Mutex // guards what follows
	left int        // out since the last line that had room
}

func newSpool(to io.Writer) *spool {
	s := &spool{to: to, lines: make(chan []byte, logLines), ended: make(chan struct{})}
	go func() {
		for line := range s.lines {
			if line == nil {
				close(s.ended)
				return
			}
			_, _ = s.to.Write(line) // there is nobody to be told
		}
	}()
	return s
}

// Write never fails.
func (s *spool) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.confess() || !s.put(bytes.Clone(line)) {
		s.left++
	}
	return len(line), nil
}

func (s *spool) put(line []byte) bool {
	select {
	case s.lines <- line:
		return true
	default:
		return false
	}
}

// confess says what was left out, if there is room for that.
func (s *spool) confess() bool {
	if s.left > 0 && !s.put(fmt.Appendf(nil, "%d entries of the log were left out here: it took none\n", s.left)) {
		return false
	}
	s.left = 0
	return true
}

// Close waits for what has been written, if that does not take long.
func (s *spool) Close() error {
	late := time.After(lastLines)
	s.mu.Lock()
	s.confess()
	s.mu.Unlock()
	select {
	case s.lines <- nil:
	case <-late:
		return nil
	}
	select {
	case <-s.ended:
	case <-late:
	}
	return nil
}
