package egress

import (
	"math"
	"net/netip"
	"sync"
	"time"
)

// FlowCount is what a flow has done since it began, and its smoothed round-trip time now.
type FlowCount struct {
	// Exit it leaves through; empty if that is none of the configured.
	Exit string
	// Moved says that it is not the exit of the best path.
	Moved                bool
	Client               netip.Addr
	AckedBytes           uint64
	SentSegments, Resent uint32
	SRTTUs               uint32
	// Waits says that data waits to be sent, and did for a while.
	Waits bool
}

// ExitTraffic is what an exit's flows do together.
type ExitTraffic struct {
	// Flows that had something acknowledged at the last look.
	Flows int
	// AckedBytes, SentSegments (with those sent again) and Resent are totals since the first look.
	AckedBytes, SentSegments, Resent uint64
	// GoodputBps, LossPercent (segments sent again, of those sent) and RTTMs (mean over the bytes acknowledged; 0: nothing was) are of the last
	// seconds: what is half a minute old counts a tenth.
	GoodputBps, LossPercent, RTTMs float64
}

// fade is how long it takes until what happened counts a tenth.
const fade = 30 * time.Second

// Since is what a flow did after it had done what before says. Its counters begin again if its addresses and ports are used anew. What was sent again without data, the end of a connection,
// is in the kernel's count of repetitions and not in that of segments.
func (f FlowCount) Since(before FlowCount) FlowCount {
	const less = 1 << 31 // a difference of so many segments is one below zero: the counts wrap
	if f.AckedBytes >= before.AckedBytes && f.SentSegments-before.SentSegments < less && f.Resent-before.Resent < less {
		f.AckedBytes -= before.AckedBytes
		f.SentSegments -= before.SentSegments
		f.Resent -= before.Resent
	}
	f.Resent = min(f.Resent, f.SentSegments)
	return f
}

// sums are what rates are made of, fading.
type sums struct{ seconds, bytes, sent, resent, rttBytes float64 }

func (s *sums) fade(keep, seconds float64) {
	*s = sums{s.seconds*keep + seconds, s.bytes * keep, s.sent * keep, s.resent * keep, s.rttBytes * keep}
}

func (s *sums) add(did FlowCount) {
	s.bytes += float64(did.AckedBytes)
	s.sent += float64(did.SentSegments)
	s.resent += float64(did.Resent)
	s.rttBytes += float64(did.AckedBytes) * float64(did.SRTTUs)
}

func (s *sums) rates() (goodputBps, lossPercent, rttMs float64) {
	if s.seconds > 0 {
		goodputBps = 8 * s.bytes / s.seconds
	}
	if s.sent > 0 {
		lossPercent = 100 * s.resent / s.sent
	}
	if s.bytes > 0 {
		rttMs = s.rttBytes / s.bytes / 1000
	}
	return goodputBps, lossPercent, rttMs
}

// Traffic adds up what flows do, by exit. K tells flows apart. One goroutine looks, and asks for Loads and MovedPercent; everything else any may ask, who then waits for some microseconds.
type Traffic[K comparable] struct {
	sums  map[string]*sums
	moved struct{ bytes, all float64 }
	loads []WayLoad
	ways  ways

	mu     sync.RWMutex // guards what follows; what is in it does not change. Who looks may read without it.
	at     time.Time    // of the last look
	last   map[K]FlowCount
	exits  map[string]ExitTraffic
	did    map[K]FlowCount
	index  map[wayTo]int // of loads
	passed time.Duration
}

// NewTraffic has seen nothing yet.
func NewTraffic[K comparable]() *Traffic[K] {
	return &Traffic[K]{sums: map[string]*sums{}, ways: newWays()}
}

// RTTUs is the round-trip time of the client's flows through the exit when one of them last did something, else of its handshake; 0: not known.
func (t *Traffic[K]) RTTUs(exit string, client netip.Addr) float64 { return t.ways.rttUs(exit, client) }

// Way is what the client's flows through the exit did between the last two looks: in Mbit/s acknowledged, and in percent of the segments sent again.
func (t *Traffic[K]) Way(exit string, client netip.Addr) (goodputMbps, lossPercent float64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, is := t.index[wayTo{exit, client}]
	if !is || t.passed <= 0 {
		return 0, 0
	}
	w := t.loads[i]
	if w.Sent > 0 {
		lossPercent = 100 * w.Resent / w.Sent
	}
	return 8e-6 * w.Bytes / t.passed.Seconds(), lossPercent
}

// MovedPercent is how much of what was acknowledged lately left by other exits than the best path's.
func (t *Traffic[K]) MovedPercent() float64 {
	if t.moved.all == 0 {
		return 0
	}
	return 100 * t.moved.bytes / t.moved.all
}

// Loads is what clients' flows did between the last two looks, by exit, where they did something. It is only read.
func (t *Traffic[K]) Loads() []WayLoad { return t.loads }

// Exits is what there was at the last look, by exit.
func (t *Traffic[K]) Exits() map[string]ExitTraffic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.exits
}

// Did is what each flow did between the last two looks, of those that did anything, and how long that was. The map is only read.
func (t *Traffic[K]) Did() (did map[K]FlowCount, in time.Duration) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.did, t.passed
}

// Before is what a flow had done at the last look, and when that was; nothing if it was not there.
func (t *Traffic[K]) Before(k K) (FlowCount, time.Time) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last[k], t.at
}

// look is one under way.
type look[K comparable] struct {
	exits   map[string]ExitTraffic
	did     map[K]FlowCount
	index   map[wayTo]int
	loads   []WayLoad
	weights []float64 // of the loads' round-trip times
}

// begin fades what was, and returns the look that has found nothing yet.
func (t *Traffic[K]) begin(passed time.Duration) look[K] {
	keep := math.Pow(0.1, passed.Seconds()/fade.Seconds())
	t.moved.bytes, t.moved.all = t.moved.bytes*keep, t.moved.all*keep
	l := look[K]{exits: make(map[string]ExitTraffic, len(t.exits)), did: make(map[K]FlowCount, len(t.did)), index: make(map[wayTo]int, len(t.index))}
	for name, x := range t.exits {
		x.Flows = 0
		l.exits[name] = x
		t.sums[name].fade(keep, passed.Seconds())
	}
	return l
}

// way takes in a flow that did something, or is new. Of several the round-trip time is the mean over the bytes.
func (l *look[K]) way(did FlowCount, known *ways) {
	if did.SRTTUs == 0 {
		return
	}
	k := wayTo{did.Exit, did.Client}
	i, is := l.index[k]
	if !is {
		least := math.Inf(1)
		if r, is := known.find(k); is {
			least = float64(r.leastUs)
		}
		i = len(l.loads)
		l.index[k] = i
		l.loads, l.weights = append(l.loads, WayLoad{Exit: did.Exit, Best: !did.Moved, Client: did.Client, LeastRTTUs: least}), append(l.weights, 0)
	}
	w, bytes := &l.loads[i], float64(did.AckedBytes)
	w.Bytes += bytes
	w.Sent += float64(did.SentSegments)
	w.Resent += float64(did.Resent)
	w.Waits = w.Waits || did.Waits
	l.weights[i] += bytes + 1
	w.RTTUs += (float64(did.SRTTUs) - w.RTTUs) * (bytes + 1) / l.weights[i]
	w.LeastRTTUs = min(w.LeastRTTUs, float64(did.SRTTUs))
}

// add takes in what a flow did since the last look.
func (t *Traffic[K]) add(l *look[K], k K, did FlowCount) {
	x := l.exits[did.Exit]
	if did.AckedBytes > 0 {
		x.Flows++
	}
	x.AckedBytes += did.AckedBytes
	x.SentSegments += uint64(did.SentSegments)
	x.Resent += uint64(did.Resent)
	l.exits[did.Exit] = x
	t.sums[did.Exit].add(did)
	t.moved.all += float64(did.AckedBytes)
	if did.Moved {
		t.moved.bytes += float64(did.AckedBytes)
	}
	if did.AckedBytes > 0 || did.SentSegments > 0 {
		l.did[k] = did
	}
}

// Look takes in all flows there are. What the first look finds is where counting starts.
func (t *Traffic[K]) Look(flows map[K]FlowCount, now time.Time) {
	first, passed := t.last == nil, now.Sub(t.at)
	if first {
		passed = 0
	}
	l := t.begin(passed)
	for k, f := range flows {
		if t.sums[f.Exit] == nil {
			t.sums[f.Exit] = &sums{}
			l.exits[f.Exit] = ExitTraffic{}
		}
		if s := t.sums[f.Exit]; s.seconds == 0 && !first {
			s.seconds = passed.Seconds()
		}
		before, known := t.last[k]
		did := f.Since(before)
		if first {
			did.AckedBytes, did.SentSegments, did.Resent = 0, 0, 0
		} else {
			t.add(&l, k, did)
		}
		if !known || did.AckedBytes > 0 || did.SentSegments > 0 {
			l.way(did, &t.ways)
		}
	}
	for name, x := range l.exits {
		x.GoodputBps, x.LossPercent, x.RTTMs = t.sums[name].rates()
		l.exits[name] = x
	}
	t.mu.Lock()
	t.last, t.at = flows, now
	t.exits, t.did, t.index, t.loads, t.passed = l.exits, l.did, l.index, l.loads, passed
	t.mu.Unlock()
	t.ways.put(l.loads, now)
}
