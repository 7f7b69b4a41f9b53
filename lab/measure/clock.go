package measure

import (
	"context"
	"fmt"
	"time"
)

// The clock of a guest that waits for its host can jump: virtual time goes on while nothing runs. A run in which that
// happens is not deterministic. The watchdog sees it as two ticks that are too far apart; what a busy guest adds to an
// interval is milliseconds.
const (
	watchdogTick = 500 * time.Millisecond
	watchdogJump = time.Second
)

// watchdog looks for jumps of the clock.
type watchdog struct {
	stop        func()
	done        chan struct{}
	start, last time.Time
	jump        error
}

func openWatchdog(ctx context.Context) *watchdog {
	ctx, stop := context.WithCancel(ctx)
	now := time.Now()
	w := &watchdog{stop: stop, done: make(chan struct{}), start: now, last: now}
	go w.runWatchdog(ctx)
	return w
}

func (w *watchdog) runWatchdog(ctx context.Context) {
	defer close(w.done)
	ticker := time.NewTicker(watchdogTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.tick(time.Now())
		}
	}
}

// tick remembers the first jump.
func (w *watchdog) tick(now time.Time) {
	if step := now.Sub(w.last); step > watchdogJump && w.jump == nil {
		w.jump = fmt.Errorf("clock jumped by %.1f s, %.1f s into the measurement: the host kept the guest waiting, run again",
			step.Seconds(), now.Sub(w.start).Seconds())
	}
	w.last = now
}

func (w *watchdog) finish(time.Duration, *Outcome) error {
	w.stop()
	<-w.done
	w.tick(time.Now()) // the last jump may be into the end
	return w.jump
}
