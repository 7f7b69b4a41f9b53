package link

import (
	"math"
	"testing"

	"plait.dev/plait/internal/rung"
)

// lossChain is the Markov chain of (channel state, outcome) over frames, written out so that the tests can derive what
// the model must show. Element s*2+x is state s (0 good, 1 bad) in which the frame was lost (x = 1) or not.
type lossChain struct {
	stationary [4]float64
	step       [4][4]float64
}

func newLossChain(c GilbertElliottConfig) lossChain {
	n := float64(c.MACAttempts)
	loss := [2]float64{math.Pow(c.LossGood, n), math.Pow(c.LossBad, n)} // all attempts fail, independently
	move := [2][2]float64{{1 - c.P, c.P}, {c.R, 1 - c.R}}
	state := [2]float64{c.R / (c.P + c.R), c.P / (c.P + c.R)} // solves state * move = state
	outcome := func(s, x int) float64 {
		if x == 1 {
			return loss[s]
		}
		return 1 - loss[s]
	}
	var chain lossChain
	for from := range 4 {
		chain.stationary[from] = state[from/2] * outcome(from/2, from%2)
		for to := range 4 {
			chain.step[from][to] = move[from/2][to/2] * outcome(to/2, to%2)
		}
	}
	return chain
}

// mean is E[f(Y0, Y1)] of two successive elements of the stationary chain.
func (c lossChain) mean(f func(from, to int) float64) float64 {
	var sum float64
	for from := range 4 {
		for to := range 4 {
			sum += c.stationary[from] * c.step[from][to] * f(from, to)
		}
	}
	return sum
}

// longRunVariance is the limit of n * Var(mean of Z1 ... Zn) for Zi = f(Yi-1, Yi) of mean 0:
//
//	E[Z1^2] + 2 * sum over k >= 1 of E[Z1 Z1+k]
//
// E[Z1 Z1+k] is the sum over y of E[Z1; Y1 = y] after k-1 steps of the chain, times E[Z | previous element y]. It
// shrinks by 1-P-R per step, so the sum ends when the channel has forgotten its state.
func (c lossChain) longRunVariance(f func(from, to int) float64) float64 {
	variance := c.mean(func(from, to int) float64 { return f(from, to) * f(from, to) })
	var after, ahead [4]float64 // E[Z1; Y1 = y] and E[Z | previous y]
	for from := range 4 {
		for to := range 4 {
			after[to] += c.stationary[from] * c.step[from][to] * f(from, to)
			ahead[from] += c.step[from][to] * f(from, to)
		}
	}
	for range 1_000_000 {
		var next [4]float64
		var covariance float64
		for y := range 4 {
			covariance += after[y] * ahead[y]
			for to := range 4 {
				next[to] += after[y] * c.step[y][to]
			}
		}
		variance += 2 * covariance
		after = next
		if math.Abs(covariance) < 1e-15 {
			break
		}
	}
	return variance
}

func lost(_, to int) float64           { return float64(to % 2) }
func burstBegins(from, to int) float64 { return float64((1 - from%2) * (to % 2)) }

var channels = map[string]GilbertElliottConfig{
	"thesis":               {P: 0.00031249, R: 0.00055368, LossGood: 0.09685, LossBad: 0.20442, MACAttempts: 1, Seed: 1},
	"thesis, 3 attempts":   {P: 0.00031249, R: 0.00055368, LossGood: 0.09685, LossBad: 0.20442, MACAttempts: 3, Seed: 1},
	"Gilbert":              {P: 0.01, R: 0.3, LossGood: 0, LossBad: 1, MACAttempts: 1, Seed: 1},
	"bursty with attempts": {P: 0.05, R: 0.1, LossGood: 0.1, LossBad: 0.8, MACAttempts: 2, Seed: 1},
}

func TestGilbertElliottMatchesTheory(t *testing.T) {
	n := float64(rung.Times(200_000, 1_000_000))
	for name, config := range channels {
		t.Run(name, func(t *testing.T) {
			g := NewGilbertElliott(config)
			var losses, bursts float64
			wasLost := false
			for range int(n) {
				before := g.Dropped()
				g.Send(0, Packet{})
				g.Receive(0)
				isLost := g.Dropped() > before
				if isLost {
					losses++
					if !wasLost {
						bursts++
					}
				}
				wasLost = isLost
			}
			chain := newLossChain(config)
			rate, begins := chain.mean(lost), chain.mean(burstBegins)
			sigma := math.Sqrt(chain.longRunVariance(func(from, to int) float64 { return lost(from, to) - rate }) / n)
			if got := losses / n; math.Abs(got-rate) > 3*sigma {
				t.Errorf("loss rate %.5f, want %.5f +- %.5f", got, rate, 3*sigma)
			}
			// The mean burst length is a ratio of two means, losses by bursts; to first order it varies like the mean of
			// (lost - length * begins) / begins.
			length := rate / begins
			sigma = math.Sqrt(chain.longRunVariance(func(from, to int) float64 {
				return (lost(from, to) - length*burstBegins(from, to)) / begins
			}) / n)
			if got := losses / bursts; math.Abs(got-length) > 3*sigma {
				t.Errorf("mean loss burst %.4f frames, want %.4f +- %.4f", got, length, 3*sigma)
			}
		})
	}
}

// The general derivation above against formulas that can be had by hand.
func TestLossChainAgainstClosedForms(t *testing.T) {
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s = %g, want %g", what, got, want)
		}
	}
	c := channels["thesis"]
	chain := newLossChain(c)
	bad := c.P / (c.P + c.R)
	rate := (1-bad)*c.LossGood + bad*c.LossBad
	near("loss rate", chain.mean(lost), rate)
	// Losses k frames apart have the covariance bad (1-bad) (LossBad-LossGood)^2 (1-P-R)^k.
	memory := (1 - c.P - c.R) / (c.P + c.R)
	spread := c.LossBad - c.LossGood
	near("variance of the loss rate", chain.longRunVariance(func(from, to int) float64 { return lost(from, to) - rate }),
		rate*(1-rate)+2*bad*(1-bad)*spread*spread*memory)
	// In Gilbert's channel (a good state without loss, a bad one that loses all) a burst is one stay in the bad state:
	// geometric with mean 1/R and variance (1-R)/R^2, and bursts begin at the rate P R / (P+R).
	c = channels["Gilbert"]
	chain = newLossChain(c)
	begins := chain.mean(burstBegins)
	near("bursts per frame", begins, c.P*c.R/(c.P+c.R))
	length := chain.mean(lost) / begins
	near("mean burst", length, 1/c.R)
	near("variance of a burst", begins*chain.longRunVariance(func(from, to int) float64 {
		return (lost(from, to) - length*burstBegins(from, to)) / begins
	}), (1-c.R)/(c.R*c.R))
}

func TestGilbertElliottThatNeverMoves(t *testing.T) {
	g := NewGilbertElliott(GilbertElliottConfig{LossGood: 0, LossBad: 1, MACAttempts: 1, Seed: 1})
	for range 1000 {
		g.Send(0, Packet{})
	}
	wantQueued(t, g, 0, 0, 0)
}
