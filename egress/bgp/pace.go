package bgp

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// turnEvery is the time between two batches of a reflector that does not pause; a batch that is full does not wait for it.
	turnEvery = 50 * time.Millisecond
	// turnsAtOnce is how many come without waiting after a quiet time: what BGP says of one failure comes in some few messages, and each counts.
	turnsAtOnce = 20
)

// pace says when a reflector's next batch is due.
type pace struct{ *rate.Limiter }

func newPace() pace { return pace{rate.NewLimiter(rate.Every(turnEvery), turnsAtOnce)} }

// take takes the next turn and returns how long to wait for it.
func (p pace) take(now time.Time) time.Duration { return p.ReserveN(now, 1).DelayFrom(now) }
