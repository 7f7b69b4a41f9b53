package link

import (
	"math/rand/v2"
	"time"
)

// GilbertElliottConfig describes the two-state channel of Gilbert (1960) and Elliott (1963). Probabilities are from 0 to 1.
type GilbertElliottConfig struct {
	// P is the probability of going from the good to the bad state, per frame.
	P float64
	// R is the probability of going from the bad to the good state, per frame.
	R float64
	// LossGood is the loss of one transmission in the good state (1-k).
	LossGood float64
	// LossBad is the loss of one transmission in the bad state (1-h).
	LossBad float64
	// MACAttempts is how often the link layer tries a frame, at least 1. All attempts see the state of the frame; the
	// frame is lost if every attempt is, so that a state with loss l has the residual loss l^MACAttempts.
	MACAttempts int
	// Seed of the random process.
	Seed uint64
}

// GilbertElliott is a channel that loses packets in bursts. A frame is sent in the current state, then the state moves
// once, as in netem's gemodel (net/sched/sch_netem.c, loss_gilb_ell). Unlike there, the first state is drawn from the
// stationary distribution. Attempts take no time.
type GilbertElliott struct {
	due
	config GilbertElliottConfig
	bad    bool
	random *rand.Rand
}

// NewGilbertElliott returns the channel in a random state.
func NewGilbertElliott(c GilbertElliottConfig) *GilbertElliott {
	random := newRandom(c.Seed)
	// Stationary probability of bad: P / (P+R). Multiplied out, a channel that never moves (P = R = 0) is good.
	bad := random.Float64()*(c.P+c.R) < c.P
	return &GilbertElliott{config: c, bad: bad, random: random}
}

// lost tells whether all attempts in the current state fail.
func (g *GilbertElliott) lost() bool {
	loss := g.config.LossGood
	if g.bad {
		loss = g.config.LossBad
	}
	for range g.config.MACAttempts {
		if g.random.Float64() >= loss {
			return false
		}
	}
	return true
}

func (g *GilbertElliott) move() {
	leave := g.config.P
	if g.bad {
		leave = g.config.R
	}
	if g.random.Float64() < leave {
		g.bad = !g.bad
	}
}

// Send implements Model.
func (g *GilbertElliott) Send(now time.Duration, p Packet) {
	lost := g.lost()
	g.move()
	if lost {
		g.dropped++
		return
	}
	g.add(now, p)
}
