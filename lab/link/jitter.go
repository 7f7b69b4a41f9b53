package link

import (
	"math/rand/v2"
	"time"
)

// JitterConfig describes random additional delay.
type JitterConfig struct {
	// Mean of the exponential distribution the delay is drawn from, before the cap.
	Mean time.Duration
	// Max caps the delay: a longer one becomes Max.
	Max time.Duration
	// InOrder holds a packet until all that came earlier have left.
	InOrder bool
	// Seed of the random process.
	Seed uint64
}

// Jitter delays each packet by an independent random time.
type Jitter struct {
	due
	config JitterConfig
	last   time.Duration // when the last packet in order comes out
	random *rand.Rand
}

// NewJitter returns the model.
func NewJitter(c JitterConfig) *Jitter {
	return &Jitter{config: c, random: newRandom(c.Seed)}
}

// Send implements Model.
func (j *Jitter) Send(now time.Duration, p Packet) {
	at := now + min(time.Duration(j.random.ExpFloat64()*float64(j.config.Mean)), j.config.Max)
	if j.config.InOrder {
		at = max(at, j.last)
		j.last = at
	}
	j.add(at, p)
}
