package link

import (
	"math/rand/v2"
	"time"
)

// ReorderConfig describes a channel that lets some packets be overtaken.
type ReorderConfig struct {
	// Probability of a packet being held back, from 0 to 1, independent of all others.
	Probability float64
	// Extra is how long it is held back.
	Extra time.Duration
	// Seed of the random process.
	Seed uint64
}

// Reorder holds some packets back for a fixed time; what comes within that time and is not held back overtakes them.
type Reorder struct {
	due
	config ReorderConfig
	random *rand.Rand
}

// NewReorder returns the model.
func NewReorder(c ReorderConfig) *Reorder {
	return &Reorder{config: c, random: newRandom(c.Seed)}
}

// Send implements Model.
func (r *Reorder) Send(now time.Duration, p Packet) {
	if r.random.Float64() < r.config.Probability {
		now += r.config.Extra
	}
	r.add(now, p)
}
