package measure

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatchdog(context.Background())
		time.Sleep(time.Minute)
		if err := w.finish(0, nil); err != nil {
			t.Errorf("a clock that runs evenly: %v", err)
		}
	})
}

func TestWatchdogJump(t *testing.T) {
	start := time.Unix(0, 0)
	w := &watchdog{last: start}
	for _, at := range []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 71200 * time.Millisecond, 80 * time.Second} {
		w.tick(start, start.Add(at))
	}
	if w.jump == nil || !strings.Contains(w.jump.Error(), "jumped by 70.1 s, 71.2 s into") {
		t.Errorf("jump: %v", w.jump)
	}
}
