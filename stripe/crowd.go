package stripe

import (
	"math"
	"slices"
	"time"
)

// Paths between one link of the dialer's host and several of the listener's are several connections on that link: where it is the bottleneck they take several shares
// of it from whoever else uses it, and bring nothing. Where the listener's links are the bottlenecks they bring what each of them gives. Paths that wait in
// one queue have round trips that rise and fall together. Those of equal links apart may do so, too, by chance or because they began together; but without
// the others, one path then brings much less than all did, and no more than it did beside them. All of that must be otherwise for others to rest.

const (
	// weighSettle is left out of a measurement: slow start, and others that give way or recover.
	weighSettle = time.Second
	// weighTime is how long is measured: several of TCP's saw teeth.
	weighTime = 4 * time.Second
	// weighAlike is the correlation of round trips above which two paths seem to wait in one queue, if they vary by weighLeast.
	weighAlike = 0.7
	weighLeast = 0.002 // s, standard deviation
	weighMany  = 20    // round trips at least
	// weighAlone is the least part of what all bring together that one must bring alone: on a link that one other connection uses it is 3/4, on two equal links 1/2.
	weighAlone = 0.6
	// weighMore is the least part of what first brought beside the others that it must bring alone: what these took from it. On a link that n others use it is (n+2)/(n+1); where the
	// listener's links are the bottlenecks, however unequal, it is 1.
	weighMore = 1.15
	// weighSame is how far from 1 that is at most where the listener's links are the bottlenecks and full. A connection of others that had more than its share by chance
	// makes it anything: what is neither is measured once more.
	weighSame = 0.05
	// weighAgain is how long what came out holds; after each time twice as long, up to weighAgainMax.
	weighAgain    = 30 * time.Second
	weighAgainMax = 8 * time.Minute
)

// crowd is the paths that share a link of the dialer's host.
type crowd struct {
	first   *flight // goes on when others rest
	alike   map[*flight]*trips
	alone   bool // those that seem to wait in the queue of first rest
	settled bool // nothing is measured now
	doubted bool // it is measured once more
	at      time.Time
	took    time.Duration // of this measurement so far, or since it is settled
	again   time.Duration
	before  [2]uint64 // bytes delivered until at, by all and by first
	bytes   [2]uint64 // in this measurement
	beside  [2]uint64 // in the one in which all carried
}

// trips are sums of two paths' round trips, in seconds.
type trips struct{ n, a, b, aa, bb, ab float64 }

func (t *trips) add(a, b float64) {
	t.n, t.a, t.b, t.aa, t.bb, t.ab = t.n+1, t.a+a, t.b+b, t.aa+a*a, t.bb+b*b, t.ab+a*b
}

// alike reports whether they rise and fall together.
func (t *trips) alike() bool {
	a, b := t.aa/t.n-t.a*t.a/t.n/t.n, t.bb/t.n-t.b*t.b/t.n/t.n
	return t.n >= weighMany && min(a, b) > weighLeast*weighLeast && t.ab/t.n-t.a*t.b/t.n/t.n > weighAlike*math.Sqrt(a*b)
}

// weigh looks after the paths that share a link. It is called every tickEvery.
func (s *scheduler) weigh(now time.Time) {
	members := map[*meter][]*flight{}
	for _, f := range s.flights {
		if f.near != nil && !f.spent() && !f.backup() {
			members[f.near] = append(members[f.near], f)
		}
	}
	for of, c := range s.crowds {
		if !slices.Contains(s.flights, c.first) {
			delete(s.crowds, of)
		}
	}
	for of, all := range members {
		if s.crowds[of] == nil && len(all) > 1 {
			if s.crowds == nil {
				s.crowds = map[*meter]*crowd{}
			}
			s.crowds[of] = &crowd{first: all[0], alike: map[*flight]*trips{}, at: now, again: weighAgain / 2}
		}
		if c := s.crowds[of]; c != nil {
			c.weigh(all, now, len(all) > 1 && s.unsent > s.maxUnsent()/2)
		}
	}
}

// rests reports whether a path leaves its link to another one, which may carry: one that has had its share leaves the rest to others itself.
func (s *scheduler) rests(f *flight, now time.Time) bool {
	c := s.crowds[f.near]
	return c != nil && c.alone && c.alike[f] != nil && !c.first.silent(now) && !c.first.spent() && (!c.first.sated(s.sent) || f.sated(s.sent)) &&
		slices.Contains(s.flights, c.first)
}

// weigh measures all paths together and then, if some seem to wait in one queue, without those, and decides. The time while the writer is not ahead
// of the links says nothing; full is that it is.
func (c *crowd) weigh(all []*flight, now time.Time, full bool) {
	took, before := now.Sub(c.at), c.before
	c.at, c.before = now, [2]uint64{0, c.first.delivered}
	for _, f := range all {
		c.before[0] += f.delivered
	}
	if !full && !c.settled {
		return
	}
	c.took += took
	if c.took > weighSettle && !c.settled {
		for i, n := range c.before {
			c.bytes[i] += n - min(n, before[i])
		}
		c.compare(all)
	}
	switch {
	case c.settled && c.took >= c.again:
		c.begin()
	case c.settled || c.took < weighSettle+weighTime:
		return
	case !c.alone:
		c.alone, c.beside = c.seem(), c.bytes
		c.settled = !c.alone
	default:
		c.decide()
	}
	if c.settled {
		c.again = min(weighAgainMax, 2*c.again)
	}
	c.took, c.bytes = 0, [2]uint64{}
}

// begin has all carry and be measured.
func (c *crowd) begin() { c.settled, c.alone, c.alike = false, false, map[*flight]*trips{} }

// decide compares what first brings alone with what all and it brought before.
func (c *crowd) decide() {
	more := float64(c.bytes[1]) / float64(max(1, c.beside[1]))
	switch {
	case float64(c.bytes[0]) >= weighAlone*float64(c.beside[0]) && more >= weighMore:
		c.settled, c.doubted = true, false
	case math.Abs(more-1) <= weighSame || c.doubted:
		c.settled, c.alone, c.doubted = true, false, false
	default:
		c.begin()
		c.doubted = true
	}
}

// compare notes packets' round trips while all carry: those of chunks tell of the turns in which paths take them.
func (c *crowd) compare(all []*flight) {
	for _, f := range all {
		if c.alone || f == c.first {
			continue
		}
		if c.alike[f] == nil {
			c.alike[f] = &trips{}
		}
		c.alike[f].add(c.first.packetRTT.Seconds(), f.packetRTT.Seconds())
	}
}

// seem leaves those that seem to wait in one queue with first, and reports whether there are any.
func (c *crowd) seem() bool {
	for f, t := range c.alike {
		if !t.alike() {
			delete(c.alike, f)
		}
	}
	return len(c.alike) > 0
}
