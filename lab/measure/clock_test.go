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
	w := &watchdog{start: start, last: start}
	for _, at := range []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 71200 * time.Millisecond, 80 * time.Second} {
		w.tick(start.Add(at))
	}
	if w.jump == nil || !strings.Contains(w.jump.Error(), "jumped by 70.1 s, 71.2 s into") {
		t.Errorf("jump: %v", w.jump)
	}
}

// The measurement may end while the host keeps the guest waiting: then no tick comes after the jump.
func TestWatchdogJumpAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWatchdog(context.Background())
		w.stop()
		<-w.done
		time.Sleep(2 * time.Second)
		if err := w.finish(0, nil); err == nil {
			t.Error("a jump after the last tick is not seen")
		}
	})
}
