package signals

import "math"

const (
	// alpha is the chance that the interval ever leaves the true value out.
	alpha = 0.05
	// tunedFor is the information (1/variance of the estimate) at which the interval is nearly as narrow as it can be: of logarithms, a standard
	// error of 5 %, where a difference of 16 % shows.
	tunedFor = 1 / (0.05 * 0.05)
	// minConnections is how many connections each group must be worth: with fewer, the mean of their logarithms is too far from a normal distribution.
	minConnections = 10
	// widest is the half width of an interval that says anything: of logarithms, a factor of 1000.
	widest = 6.9
)

// Group is what was measured of a group of connections, values of which each has one or more: sums, from which follow the mean and how far chance moves it. All are finite; what they
// are of, and its unit, is the caller's.
type Group struct {
	Connections float64 `json:"connections"`
	Samples     float64 `json:"samples"`
	// Total is the sum of all values.
	Total float64 `json:"total"`
	// SamplesSquared is the sum, over the connections, of the square of how many values are theirs.
	SamplesSquared float64 `json:"samples_squared"`
	// TotalsSquared is the sum, over the connections, of the square of the sum of their values.
	TotalsSquared float64 `json:"totals_squared"`
	// Products is the sum, over the connections, of the sum of their values times how many those are.
	Products float64 `json:"products"`
}

// Add takes in a value of a connection that has had some, with this sum.
func (g *Group) Add(value, had, sum float64) {
	if had == 0 {
		g.Connections++
	}
	g.Samples++
	g.Total += value
	g.SamplesSquared += 2*had + 1 // (n+1)^2 - n^2
	g.TotalsSquared += value * (2*sum + value)
	g.Products += sum + (had+1)*value // (n+1)(s+x) - ns
}

// Mean of the values, 0 without any.
func (g Group) Mean() float64 {
	if g.Samples == 0 {
		return 0
	}
	return g.Total / g.Samples
}

// worth is how many connections with equally many samples say as much about a mean (Kish, Survey Sampling, 1965): a few with nearly all samples are few.
func (g Group) worth() float64 {
	return g.Samples * g.Samples / max(g.SamplesSquared, 1)
}

// deviations is the sum, over the connections, of the square of what the sum of their values is more or less than as many values at the mean would come to; noise is the variance that a
// connection's values have in common and do not show, for the clock is coarse.
func (g Group) deviations(noise float64) float64 {
	mean := g.Mean()
	return max(g.TotalsSquared-2*mean*g.Products+mean*mean*g.SamplesSquared, 0) + noise*g.SamplesSquared
}

// squaredError is the variance of the difference of two groups' means: that of a ratio, the sum of the values over their number, where connections are drawn and each brings both
// (Cochran, Sampling Techniques, 1977, section 6.3). It asks for nothing about how alike the values of a connection are, and those with most samples may have the largest. Chance decides who is in
// which group, so the spread is that of each group or of both together, whichever says less: of 15 connections in the smaller one, not one may have met what one in thirty does, as a timeout, or be
// the one that has most samples. So the samples of a connection are taken to be as many as its group's have, or all connections, if that is fewer: who waits longer for each may come to fewer.
func squaredError(a, b Group, noise float64) float64 {
	both := a.Connections + b.Connections
	each := (a.Samples + b.Samples) / both
	da, db := a.deviations(noise)/square(min(each, a.Samples/a.Connections)), b.deviations(noise)/square(min(each, b.Samples/b.Connections))
	apart := da/(a.Connections-1)/a.Connections + db/(b.Connections-1)/b.Connections
	together := (da + db) / (both - 2) * (1/a.Connections + 1/b.Connections)
	return max(apart, together)
}

func square(x float64) float64 { return x * x }

// halfWidth of the interval around an estimate with this squared error. Whoever compares again and again and acts on the first
// clear result would with the usual 1.96 standard errors sooner or later find any difference. This is the boundary of a
// confidence sequence (Robbins' normal mixture; Howard et al. 2021, doi:10.1214/20-AOS1991): with probability
// 1 - alpha the true value is inside at every look. It costs a factor of 1.55 at the information it is tuned for.
func halfWidth(squaredError float64) float64 {
	const tuning = tunedFor / 7.94 // 2 ln(1/alpha) + ln(1 + 2 ln(1/alpha)), which is narrowest at tunedFor
	information := 1 / squaredError
	v := information + tuning
	return math.Sqrt(v*math.Log(v/(tuning*alpha*alpha))) / information
}

// Interval encloses, at every look with 95 % confidence, by how much the mean of a group is above that of another, between whom chance decided. The values are logarithms. noise is the variance
// that the values of a connection have in common and do not show. There is none, and ok is false, as long as a group is worth fewer than ten connections, or if it would reach
// a thousand times as far.
func Interval(a, b Group, noise float64) (low, high float64, ok bool) {
	worth := min(a.worth()/a.Connections, b.worth()/b.Connections)    // the smaller group may have none yet of the few that have most samples
	if !(worth*min(a.Connections, b.Connections) >= minConnections) { // or no number, of counters read while they change
		return 0, 0, false
	}
	difference, width := a.Mean()-b.Mean(), halfWidth(squaredError(a, b, noise))
	if !(width <= widest) {
		return 0, 0, false
	}
	return difference - width, difference + width, true
}
