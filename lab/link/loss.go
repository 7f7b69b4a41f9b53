package link

import (
	"math/rand/v2"
	"time"
)

// Loss drops each packet independently with the same probability.
type Loss struct {
	due
	probability float64
	random      *rand.Rand
}

// NewLoss returns a channel that loses packets with a probability from 0 to 1.
func NewLoss(probability float64, seed uint64) *Loss {
	return &Loss{probability: probability, random: newRandom(seed)}
}

// SetProbability changes the loss of packets that enter from now on.
func (l *Loss) SetProbability(p float64) { l.probability = p }

// Send implements Model.
func (l *Loss) Send(now time.Duration, p Packet) {
	if l.random.Float64() < l.probability {
		l.dropped++
		return
	}
	l.add(now, p)
}

// newRandom is the random process of one model. Seeds that are mixed well (hashes) give independent processes.
func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
