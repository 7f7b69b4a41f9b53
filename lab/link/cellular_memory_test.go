package link

import "math"

// The grid that fitMemory searches. Three exponentials describe the recordings; times beyond a quarter of their length
// cannot be told apart.
var (
	memoryFastS   = []float64{0.02, 0.05, 0.1}
	memoryMiddleS = []float64{0.2, 0.3, 0.5, 0.8, 1.2}
	memorySlowS   = []float64{1.5, 2, 3, 5, 8, 12, 20, 30}
)

const memoryShareStep = 0.05

// fitMemory searches the times and shares with which the autocorrelation of the rate, as a recording this long would show
// it, is nearest that of the packets per slot at lags of equal ratio.
func fitMemory(p *cellularProfile, packets []float64) [3]cellularMemory {
	lags := lagsUpTo(400)
	recorded := make([]float64, len(lags))
	for i, lag := range lags {
		recorded[i] = autocorrelation(packets, lag)
	}
	toRate := p.rateCorrelation()
	best, least := *p, math.Inf(1)
	try := *p
	for _, fast := range memoryFastS {
		for _, middle := range memoryMiddleS {
			for _, slow := range memorySlowS {
				for a := 0.0; a <= 1; a += memoryShareStep {
					for b := 0.0; a+b <= 1+memoryShareStep/2; b += memoryShareStep {
						try.memory = [3]cellularMemory{{a, fast}, {b, middle}, {max(0, 1-a-b), slow}}
						if e := try.memoryError(toRate, lags, recorded, len(packets)); e < least {
							best, least = try, e
						}
					}
				}
			}
		}
	}
	for i := range best.memory {
		best.memory[i].share = math.Round(best.memory[i].share*100) / 100
	}
	return best.memory
}

// lagsUpTo is 1, 2, 3, 4, 6, 8, 12, ... up to last.
func lagsUpTo(last int) []int {
	lags := []int{1}
	for n := 2; n <= last; n *= 2 {
		lags = append(lags, n)
		if n+n/2 <= last {
			lags = append(lags, n+n/2)
		}
	}
	return lags
}

// memoryError is the sum of the squared differences. With the variance v of a recording's mean, in units of the variance
// of the process, the estimated autocorrelation is (r-v)/(1-v) on average where that of the process is r.
func (p *cellularProfile) memoryError(toRate func(float64) float64, lags []int, recorded []float64, slots int) float64 {
	at := func(lag int) float64 { return toRate(p.correlation(float64(lag) * cellularSlotMs / 1000)) }
	v, last, before := 1.0, 0, 1.0
	for _, lag := range lagsUpTo(slots) {
		r := at(lag) * (1 - float64(lag)/float64(slots))
		v += (before + r) * float64(lag-last)
		last, before = lag, r
	}
	v /= float64(slots)
	sum := 0.0
	for i, lag := range lags {
		d := (at(lag)-v)/(1-v)*(1-float64(lag)/float64(slots)) - recorded[i]
		sum += d * d
	}
	return sum
}
