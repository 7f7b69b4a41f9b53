package stripe

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// One link more than a session may have had is refused, and the session goes on without it.
func TestLinkTooManyIsRefused(t *testing.T) {
	t.Parallel()
	near, far := both(t, "")
	defer near.Abort()
	defer far.Abort()
	far.mu.Lock()
	had := far.farMeters
	far.farMeters = map[string]*meter{}
	for i := range maxPaths {
		far.farMeters[fmt.Sprint(i)] = newMeter()
	}
	far.mu.Unlock()
	near.mu.Lock()
	var only *path
	for _, p := range near.paths {
		only = p
	}
	near.mu.Unlock()
	only.end(errGone) // it is made again
	for start := time.Now(); !strings.Contains(near.failures(false)[only.link], "no more are allowed"); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second || near.reason() != nil {
			t.Fatalf("no link is told to be refused, but %v; %v", near.failures(false), near.reason())
		}
	}
	far.mu.Lock()
	far.farMeters = had
	far.mu.Unlock()
	go func() { _, _ = near.Write([]byte("more")) }()
	_ = far.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(far, make([]byte, 4)); err != nil {
		t.Error(err)
	}
}
