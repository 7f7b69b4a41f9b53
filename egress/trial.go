package egress

import (
	"math"
	"time"
)

const (
	// likeLooks at two round-trip times tell whether they move alike, one every LikeEvery: a queue has filled and emptied a few times then.
	likeLooks = 24
	// LikeEvery is how long after the first look at flows the first round-trip times come, and then the next ones.
	LikeEvery = 170 * time.Millisecond
	// likeTimes is how many times that is found before an exit is left out: queues of two links alike that began to fill together are alike, too, until each has lost packets at times of its own.
	// unlikeTimes is how many times the contrary ends it: one queue's are unlike once where only one of the two lost packets.
	likeTimes   = 2
	unlikeTimes = 2
	// alike is the least correlation of round-trip times that one queue moves, and moves the least standard deviation, of the mean.
	alike = 0.75
	moves = 0.02

	// leastTimes and mostTimes are how often an exit is left out.
	leastTimes, mostTimes = 3, 8
	// takes is the least an exit takes from the other one, as a logarithm; standardErrors is how many standard errors it must be from nothing.
	takes          = 0.08
	standardErrors = 3
	// leastSegments are those that tell a rate, and longestPart is how long they may take.
	leastSegments = 60
	longestPart   = 2 * time.Second
	// segment is how many bytes one has, about.
	segment = 1400
)

// Trial finds out whether two exits end in one bottleneck on the way to a client. First it looks whether their round-trip times move alike, as those of one queue do. Since
// two queues may do so by chance, one exit is left out then, by turns. What the other one brings more when it is alone was the first one's; where both have bottlenecks of
// their own it brings as much as before.
type Trial struct {
	rtts  [][2]float64 // of the other exit and this one
	waits int          // how many times data waited for both
	alike int          // how many times likeLooks of them moved alike
	rates []float64    // bytes a second that the other exit brought; alone in those of odd numbers
	// Times is how many times as much it brought without the exit, each time.
	Times []float64
}

// Watch takes in the round-trip times of the other exit and this one, both above 0, and whether data waits for both: without that they move as what there is to send does. It
// says when to look again; 0: the trial goes on with parts, if the two move alike.
func (t *Trial) Watch(other, this float64, waits bool) (again time.Duration, alike bool) {
	if t.rtts = append(t.rtts, [2]float64{other, this}); waits {
		t.waits++
	}
	n := len(t.rtts)
	if n%likeLooks != 0 {
		return LikeEvery, false
	}
	if 2*t.waits < n {
		return 0, false
	}
	if oneQueue(t.rtts[n-likeLooks:]) {
		t.alike++
	}
	if t.alike < likeTimes && n/likeLooks-t.alike < unlikeTimes {
		return LikeEvery, false
	}
	return 0, t.alike == likeTimes
}

// oneQueue says whether pairs of round-trip times move, and alike.
func oneQueue(pairs [][2]float64) bool {
	var mean, squares [2]float64
	n, both := float64(len(pairs)), 0.0
	for _, p := range pairs {
		mean[0] += p[0] / n
		mean[1] += p[1] / n
	}
	for _, p := range pairs {
		a, b := p[0]-mean[0], p[1]-mean[1]
		squares[0] += a * a
		squares[1] += b * b
		both += a * b
	}
	for i := range squares {
		if math.Sqrt(squares[i]/n) < moves*mean[i] {
			return false
		}
	}
	return both >= alike*math.Sqrt(squares[0]*squares[1])
}

// Alone says whether the exit is left out in the part that comes.
func (t *Trial) Alone() bool { return len(t.rates)%2 == 1 }

// RTT is the longer of the two round-trip times in the mean.
func (t *Trial) RTT() time.Duration {
	var sum [2]float64
	for _, r := range t.rtts {
		sum[0], sum[1] = sum[0]+r[0], sum[1]+r[1]
	}
	return time.Duration(max(sum[0], sum[1])/float64(len(t.rtts))) * time.Microsecond
}

// Measure is how long a part is measured.
func (t *Trial) Measure() time.Duration {
	d := max(200*time.Millisecond, 4*t.RTT())
	if len(t.rates) > 0 && t.rates[0] > 0 {
		d = max(d, time.Duration(leastSegments*segment/t.rates[0]*float64(time.Second)))
	}
	return min(d, max(longestPart, 4*t.RTT()))
}

// Add takes in a part: what the exit that goes on brought, in bytes a second; 0: nothing is known. It says whether the trial is over, and what it found.
func (t *Trial) Add(rate float64) (over, shared bool) {
	t.rates = append(t.rates, rate)
	n := len(t.rates)
	if rate <= 0 || n < 3 || n%2 == 0 {
		return rate <= 0, false
	}
	t.Times = append(t.Times, t.rates[n-2]/math.Sqrt(t.rates[n-3]*t.rates[n-1]))
	var mean, squares float64
	times := float64(len(t.Times))
	for _, x := range t.Times {
		mean += math.Log(x) / times
	}
	for _, x := range t.Times {
		squares += (math.Log(x) - mean) * (math.Log(x) - mean)
	}
	switch {
	case mean < takes/2, len(t.Times) > 1 && mean < takes:
		return true, false
	case len(t.Times) >= leastTimes && mean > standardErrors*math.Sqrt(squares/(times-1)/times):
		return true, true
	}
	return len(t.Times) == mostTimes, false
}
