package signals

import "math"

// PeriodUs is the time after which a rate is computed anew: 200 ms, R-TCP thesis (2016), section 6.2.
const PeriodUs = 200_000

// AverageWeight is the share a new period has in the moving average. The thesis takes "a moving average with the values
// computed before" (section 4.6.3) and gives neither its form nor a weight. 1/8 is what TCP itself smooths its RTT with
// (RFC 6298); a change is then seen to 63 % after 1.5 s.
const AverageWeight = 1.0 / 8

// Average is the exponentially weighted moving average, over periods of PeriodUs, of the rate at which one of several
// things happens: average += AverageWeight * (rate of the period - average). A period in which nothing happens counts with
// rate 0, as in the thesis, where the timer fires on an idle connection as well. The zero value is an average of 0.
type Average struct {
	value       float64
	part, whole uint64 // since startUs
	startUs     uint64
	started     bool
}

// Value is the average at the end of the last period, from 0 to 1.
func (a *Average) Value() float64 { return a.value }

// rate is that of what was counted and not yet averaged.
func (a *Average) rate() float64 {
	if a.whole == 0 {
		return 0
	}
	return float64(a.part) / float64(a.whole)
}

// Add counts part of whole, part being at most whole, in the intervalUs before atUs, and reports whether that ended a
// period. A period ends with the first sample at least PeriodUs after the previous end, and the next one begins there, so
// samples a little late make no empty periods. If several periods went by, all that was counted is taken to be of the last
// one: a sample after an idle time is made when data flows again. Where no sample could be made for everyUs, data may have
// flowed all that time, and what was counted is spread over it. A clock that goes back ends no period.
func (a *Average) Add(atUs uint64, intervalUs, everyUs uint32, part, whole uint64) bool {
	if !a.started {
		a.started, a.startUs = true, atUs-min(atUs, uint64(intervalUs))
	}
	a.part += part
	a.whole += whole
	if atUs < a.startUs || atUs-a.startUs < PeriodUs {
		return false
	}
	periods := (atUs - a.startUs) / PeriodUs
	counted := min(periods, max(1, uint64(everyUs)/PeriodUs))
	a.value *= math.Pow(1-AverageWeight, float64(periods-counted))
	a.value += (1 - math.Pow(1-AverageWeight, float64(counted))) * (a.rate() - a.value)
	a.part, a.whole, a.startUs = 0, 0, atUs
	return true
}
