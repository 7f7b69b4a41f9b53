package egress

import (
	"maps"
	"math"
	"net/netip"
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

// Since is what a flow did after it had done what before says. Its counters begin again if its addresses and ports are used anew.
func (f FlowCount) Since(before FlowCount) FlowCount {
	if f.AckedBytes < before.AckedBytes || f.SentSegments < before.SentSegments || f.Resent < before.Resent {
		return f
	}
	f.AckedBytes -= before.AckedBytes
	f.SentSegments -= before.SentSegments
	f.Resent -= before.Resent
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

// Traffic adds up what flows do, by exit. K tells flows apart.
type Traffic[K comparable] struct {
	at    time.Time
	last  map[K]FlowCount
	exits map[string]*ExitTraffic
	sums  map[string]*sums
	ways  map[wayTo]*wayRTT
	moved struct{ bytes, all float64 }

	did    map[K]FlowCount
	passed time.Duration
}

// wayRTT is the round-trip time of a client's flows through an exit.
type wayRTT struct {
	weight  float64 // bytes acknowledged in the look it is of
	at      time.Time
	WayLoad // in that look
}

// waysFor is how long the round-trip time of a way nobody uses is remembered.
const waysFor = 10 * time.Minute

// RTTUs is the round-trip time of the client's flows through the exit when one of them last did something, else of its handshake; 0: not known.
func (t *Traffic[K]) RTTUs(exit string, client netip.Addr) float64 {
	if w := t.ways[wayTo{exit, client}]; w != nil {
		return w.RTTUs
	}
	return 0
}

// Way is what the client's flows through the exit did between the last two looks: in Mbit/s acknowledged, and in percent of the segments sent again.
func (t *Traffic[K]) Way(exit string, client netip.Addr) (goodputMbps, lossPercent float64) {
	w := t.ways[wayTo{exit, client}]
	if w == nil || !w.at.Equal(t.at) || t.passed <= 0 {
		return 0, 0
	}
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

// Loads is what clients' flows did between the last two looks, by exit, where they did something.
func (t *Traffic[K]) Loads() (out []WayLoad) {
	for _, w := range t.ways {
		if w.at.Equal(t.at) {
			out = append(out, w.WayLoad)
		}
	}
	return out
}

// way takes in a flow that did something, or is new. Of several at one look the round-trip time is the mean over the bytes.
func (t *Traffic[K]) way(did FlowCount, now time.Time) {
	if did.SRTTUs == 0 {
		return
	}
	bytes := float64(did.AckedBytes)
	k := wayTo{did.Exit, did.Client}
	w := t.ways[k]
	if w == nil || !w.at.Equal(now) {
		least := math.Inf(1)
		if w != nil {
			least = w.LeastRTTUs
		}
		w = &wayRTT{at: now, WayLoad: WayLoad{Exit: did.Exit, Best: !did.Moved, Client: did.Client, LeastRTTUs: least}}
		t.ways[k] = w
	}
	w.Bytes += bytes
	w.Sent += float64(did.SentSegments)
	w.Resent += float64(did.Resent)
	w.Waits = w.Waits || did.Waits
	w.weight += bytes + 1
	w.RTTUs += (float64(did.SRTTUs) - w.RTTUs) * (bytes + 1) / w.weight
	w.LeastRTTUs = min(w.LeastRTTUs, float64(did.SRTTUs))
}

// NewTraffic has seen nothing yet.
func NewTraffic[K comparable]() *Traffic[K] {
	return &Traffic[K]{exits: map[string]*ExitTraffic{}, sums: map[string]*sums{}, ways: map[wayTo]*wayRTT{}}
}

// Exits is what there was at the last look, by exit.
func (t *Traffic[K]) Exits() map[string]ExitTraffic {
	out := make(map[string]ExitTraffic, len(t.exits))
	for name, x := range t.exits {
		out[name] = *x
	}
	return out
}

func (t *Traffic[K]) exit(name string) (*ExitTraffic, *sums) {
	if t.exits[name] == nil {
		t.exits[name], t.sums[name] = &ExitTraffic{}, &sums{}
	}
	return t.exits[name], t.sums[name]
}

// add takes in what a flow did since the last look.
func (t *Traffic[K]) add(k K, did FlowCount) {
	x, s := t.exit(did.Exit)
	if did.AckedBytes > 0 {
		x.Flows++
	}
	x.AckedBytes += did.AckedBytes
	x.SentSegments += uint64(did.SentSegments)
	x.Resent += uint64(did.Resent)
	s.add(did)
	t.moved.all += float64(did.AckedBytes)
	if did.Moved {
		t.moved.bytes += float64(did.AckedBytes)
	}
	if did.AckedBytes > 0 || did.SentSegments > 0 {
		t.did[k] = did
	}
}

// Did is what each flow did between the last two looks, of those that did anything, and how long that was.
func (t *Traffic[K]) Did() (did map[K]FlowCount, in time.Duration) { return t.did, t.passed }

// Look takes in all flows there are. What the first look finds is where counting starts.
func (t *Traffic[K]) Look(flows map[K]FlowCount, now time.Time) {
	first, passed := t.last == nil, now.Sub(t.at)
	keep := math.Pow(0.1, passed.Seconds()/fade.Seconds())
	t.moved.bytes, t.moved.all = t.moved.bytes*keep, t.moved.all*keep
	for name, s := range t.sums {
		t.exits[name].Flows = 0
		s.fade(keep, passed.Seconds())
	}
	t.did, t.passed = map[K]FlowCount{}, passed
	for k, f := range flows {
		if _, s := t.exit(f.Exit); s.seconds == 0 && !first {
			s.seconds = passed.Seconds()
		}
		before, known := t.last[k]
		did := f.Since(before)
		if first {
			did.AckedBytes, did.SentSegments, did.Resent = 0, 0, 0
		} else {
			t.add(k, did)
		}
		if !known || did.AckedBytes > 0 || did.SentSegments > 0 {
			t.way(did, now)
		}
	}
	maps.DeleteFunc(t.ways, func(_ wayTo, w *wayRTT) bool { return now.Sub(w.at) > waysFor })
	t.last, t.at = flows, now
	for name, x := range t.exits {
		x.GoodputBps, x.LossPercent, x.RTTMs = t.sums[name].rates()
	}
}
