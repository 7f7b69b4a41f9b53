package bgp

import "time"

const (
	// turnEvery is the time between two batches of a reflector that does not pause; a batch that is full does not wait for it.
	turnEvery = 50 * time.Millisecond
	// turnsAtOnce is how many come without waiting after a quiet time: what BGP says of one failure comes in some few messages, and each counts.
	turnsAtOnce = 20
)

// pace says when a reflector's next batch is due. Its zero value has been quiet for long.
type pace struct{ spent time.Time } // when all turns taken so far will be paid

// take takes the next turn and returns how long to wait for it.
func (p *pace) take(now time.Time) time.Duration {
	if p.spent.Before(now) {
		p.spent = now
	}
	p.spent = p.spent.Add(turnEvery)
	return max(0, p.spent.Sub(now)-turnsAtOnce*turnEvery)
}
