package stripe

import (
	"os"
	"sync"
	"time"
)

// signal wakes one waiter, now or when it comes.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) signal() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// deadline is one of a connection's: a channel that is closed when it has passed.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{}
}

func newDeadline() *deadline { return &deadline{past: make(chan struct{})} }

// set moves the deadline; the zero time is never. Waiters are woken even if it moves while they wait.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.past:
		d.past = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	past := d.past
	if left := time.Until(t); left > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				close(past)
				d.timer = nil
			}
		})
		d.timer = timer
		return
	}
	close(past)
}

// wait is closed when the deadline has passed. After set it is another one for those who have not waited yet only if it had passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

// await waits for the signal; done and the deadline end it. Whoever is woken looks again at what it waits for.
func (s signal) await(d *deadline, done <-chan struct{}) error {
	select {
	case <-s:
	case <-done:
	case <-d.wait():
		return os.ErrDeadlineExceeded
	}
	return nil
}
