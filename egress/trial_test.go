package egress

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sawtooth is the round-trip time of a path of 20 ms whose queue fills to 40 ms and is halved, with some noise.
func sawtooth(r *rand.Rand, at, period time.Duration) float64 {
	filled := math.Mod(at.Seconds()/period.Seconds(), 1)
	return 20_000 + 40_000*(0.5+filled/2) + 1000*r.NormFloat64()
}

// watched is what a trial says of two round-trip times whose queues fill in so long.
func watched(r *rand.Rand, waits bool, other, this time.Duration, same bool) (t *Trial, alike bool) {
	t = &Trial{}
	for at := time.Duration(0); ; {
		a := sawtooth(r, at, other)
		b := sawtooth(r, at+this/3, this)
		if same {
			b = a + 1000*r.NormFloat64()
		}
		again, alike := t.Watch(a, b, waits)
		if again == 0 {
			return t, alike
		}
		at += again
	}
}

// One queue is taken for one, two of which each has its own time for two; and nothing is where data does not wait.
func TestTrialWatches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if _, alike := watched(r, true, 1700*time.Millisecond, 0, true); !alike {
			t.Fatal("one queue is not seen")
		}
		if _, alike := watched(r, true, 1700*time.Millisecond, 1100*time.Millisecond, false); alike {
			t.Fatal("two queues are taken for one")
		}
		if _, alike := watched(r, false, 1700*time.Millisecond, 0, true); alike {
			t.Fatal("round-trip times that move with what there is to send are taken for a queue's")
		}
	}
}

// Two queues that fill alike at first, as those of two links alike do with what began at once, are two when they no longer do.
func TestTrialWatchesAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		trial, looks := &Trial{}, 0
		for at := time.Duration(0); ; looks++ {
			a := sawtooth(r, at, 1700*time.Millisecond)
			b := a + 1000*r.NormFloat64()
			if looks >= likeLooks {
				b = sawtooth(r, at, 1100*time.Millisecond)
			}
			again, alike := trial.Watch(a, b, true)
			if alike {
				t.Fatal("two queues are taken for one")
			}
			if again == 0 {
				break
			}
			at += again
		}
	}
}

// One queue is seen where its round-trip times are unlike once, as they are after losses of one of the two, and not where they are twice.
func TestTrialWatchesPastALoss(t *testing.T) {
	for _, c := range []struct {
		unlike []int // which times
		want   bool
		looks  int
	}{
		{nil, true, 2 * likeLooks},
		{[]int{0}, true, 3 * likeLooks},
		{[]int{1}, true, 3 * likeLooks},
		{[]int{0, 1}, false, 2 * likeLooks},
		{[]int{0, 2}, false, 3 * likeLooks},
		{[]int{1, 2}, false, 3 * likeLooks},
	} {
		trial, again, alike, looks := &Trial{}, LikeEvery, false, 0
		for ; again > 0; looks++ {
			a, b := 20_000+float64(looks%8)*1000, 20_000+float64(looks%8)*1000
			if slices.Contains(c.unlike, looks/likeLooks) {
				b = 40_000 - a + 7000
			}
			again, alike = trial.Watch(a, b, true)
		}
		if alike != c.want || looks != c.looks {
			t.Errorf("unlike the times %v: alike %v after %d looks, want %v after %d", c.unlike, alike, looks, c.want, c.looks)
		}
	}
}

// tried is what a trial finds if the other exit brings so many times as much alone, with so much noise in each part, and how many parts that took.
func tried(r *rand.Rand, times, noise float64) (shared bool, parts int) {
	t, _ := watched(r, true, time.Second, 0, true)
	for over := false; !over; parts++ {
		rate := 1e6 * math.Exp(noise*r.NormFloat64())
		if t.Alone() {
			rate *= times
		}
		over, shared = t.Add(rate)
	}
	return shared, parts
}

// With up to three other connections in the bottleneck it is found in nearly all trials, without one in few, soon, although all of these got past the watching.
func TestTrial(t *testing.T) {
	const runs = 2000
	for _, c := range []struct {
		what          string
		times         float64
		least, most   float64 // share of trials that find it
		leastP, mostP float64 // parts, in the mean
		noise         float64
	}{
		{what: "no other", times: 2, least: 1, most: 1, leastP: 7, mostP: 7.5, noise: 0.05},
		{what: "one other", times: 1.5, least: 0.99, most: 1, leastP: 7, mostP: 8, noise: 0.05},
		{what: "three others", times: 1.25, least: 0.97, most: 1, leastP: 7, mostP: 9, noise: 0.05},
		{what: "nothing shared", times: 1, least: 0, most: 0.02, leastP: 3.4, mostP: 4, noise: 0.05},
		{what: "nothing shared, quiet links", times: 1, least: 0, most: 0, leastP: 3, mostP: 3.1, noise: 0.01},
	} {
		r, shared, parts := rand.New(rand.NewPCG(3, 4)), 0, 0
		for range runs {
			is, n := tried(r, c.times, c.noise)
			if parts += n; is {
				shared++
			}
		}
		share, mean := float64(shared)/runs, float64(parts)/runs
		if share < c.least || share > c.most || mean < c.leastP || mean > c.mostP {
			t.Errorf("%s: found by %.3f of the trials, want %g to %g, after %.2f parts, want %g to %g", c.what, share, c.least, c.most, mean, c.leastP, c.mostP)
		}
	}
}

// Where nothing is known of a part, nothing is found.
func TestTrialWithoutData(t *testing.T) {
	var trial Trial
	if over, shared := trial.Add(0); !over || shared {
		t.Errorf("over %v, shared %v", over, shared)
	}
}

// A slow exit is measured for as long as it takes to tell its rate, within bounds.
func TestTrialMeasures(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want time.Duration
	}{{1e6, 200 * time.Millisecond}, {84_000, time.Second}, {1000, longestPart}} {
		trial := Trial{rtts: [][2]float64{{20_000, 30_000}}}
		trial.Add(c.rate)
		if got := trial.Measure(); got != c.want {
			t.Errorf("at %g bytes a second: %v, want %v", c.rate, got, c.want)
		}
	}
}
