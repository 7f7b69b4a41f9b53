package stripe

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
)

// The scheduler against an oracle: links of constant rate, and chunks of equal size. The oracle is the least time in which
// all chunks can arrive, whatever the order they are given out in.
func TestScheduleAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range rung.Times(4, 40) {
		n := 200 + r.IntN(800)
		var links []oracleLink
		slowest := 0.0
		for range 1 + r.IntN(4) {
			l := oracleLink{delay: 0.001 + 0.1*r.Float64(), chunk: 0.001 * math.Pow(50, r.Float64())}
			links = append(links, l)
			slowest = max(slowest, l.chunk)
		}
		got, want := play(t, links, n), oracle(links, n)
		if slack := 2*slowest + 2*retake.Seconds(); got > want+slack {
			t.Errorf("%d chunks over %+v take %.3f s, at best %.3f s; want no more than %.3f s beyond", n, links, got, want, slack)
		}
	}
}

// oracleLink delivers a chunk in every so many seconds, after a delay.
type oracleLink struct{ delay, chunk float64 }

// oracle is the least T such that the links deliver n chunks by T, found by bisection.
func oracle(links []oracleLink, n int) float64 {
	low, high := 0.0, 1e6
	for high-low > 1e-6 {
		mid, delivered := (low+high)/2, 0
		for _, l := range links {
			delivered += max(0, int((mid-l.delay)/l.chunk))
		}
		if delivered >= n {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// play runs the scheduler over the links and returns when the last chunk arrives. A link asks for a chunk when it has sent one.
func play(t *testing.T, links []oracleLink, n int) float64 {
	t.Helper()
	start := time.Unix(0, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * 1e9)) }
	s := scheduler{limit: maxWindow, free: func([]byte) {}}
	data := make([]byte, maxPayload)
	in := reorder{}
	in.grow(maxWindow)
	type event struct {
		at   float64
		do   func(now float64)
		link int
	}
	var events []event
	flights := make([]*flight, len(links))
	received := make([]uint64, len(links))
	done := 0.0
	var ask func(i int) func(float64)
	ask = func(i int) func(float64) {
		return func(now float64) {
			for s.room() >= maxPayload && s.base+uint64(s.chunks.len()) < uint64(n) {
				s.write(data, at(now))
			}
			c := s.take(flights[i], at(now))
			if c == nil {
				events = append(events, event{now + retake.Seconds(), ask(i), i})
				return
			}
			sent := now + links[i].chunk
			number := c.number
			events = append(events, event{sent, ask(i), i}, event{sent + links[i].delay, func(now float64) {
				if _, err := in.insert(number, data); err != nil {
					t.Fatal(err)
				}
				if in.next == uint64(n) && done == 0 {
					done = now
				}
				next := in.next
				received[i]++
				count := received[i]
				events = append(events, event{now + links[i].delay, func(now float64) {
					if err := s.ack(flights[i], count, next, maxWindow+next, in.beyond(), at(now)); err != nil {
						t.Fatal(err)
					}
				}, i})
			}, i})
		}
	}
	for i, l := range links {
		flights[i] = &flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}}
		flights[i].sampleRTT(time.Duration(2 * l.delay * 1e9))
		s.add(flights[i])
		events = append(events, event{0, ask(i), i})
	}
	for done == 0 {
		first := 0
		for i, e := range events {
			if e.at < events[first].at {
				first = i
			}
		}
		e := events[first]
		events = append(events[:first], events[first+1:]...)
		e.do(e.at)
		in.read = in.next // an application that reads at once
		for i := range in.ring {
			if uint64(i) < in.next {
				in.ring[i] = nil
			}
		}
		in.grow(maxWindow)
	}
	return done
}

// A path with nothing else to send does not repeat what another one has just taken and delivers as soon; it does if it is quicker by far, and if
// what should be there by now may take longer, as round trips vary.
func TestCopiesGain(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, tc := range []struct {
		srtt, rttvar time.Duration // of the path that carries the chunk
		after        time.Duration
		want         bool
	}{{38e6, 1e6, 1e6, false}, {45e6, 1e6, 1e6, false}, {120e6, 1e6, 1e6, true}, {60e6, 100e6, 30e6, false}, {60e6, 100e6, 61e6, true}, {60e6, 10e6, 61e6, false}} {
		s := scheduler{limit: 16, free: func([]byte) {}}
		var f [2]*flight
		for i := range f {
			f[i] = &flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}, srtt: 38e6, rttvar: 1e6, minRTT: 30e6, rate: 2.5e6}
			s.add(f[i])
		}
		f[0].srtt, f[0].rttvar = tc.srtt, tc.rttvar
		s.write(make([]byte, maxPayload), begin)
		c := s.take(f[0], begin)
		if again := s.take(f[1], begin.Add(tc.after)); c == nil || (again == c) != tc.want {
			t.Errorf("%+v: took %v and again %v", tc, c != nil, again != nil)
		}
	}
}

// A path fell silent, and what it had brought till then is told over the other one: only the rest is sent again. What is told twice, or was
// overtaken, changes nothing.
func TestSendsAgainWhatIsMissing(t *testing.T) {
	begin := time.Unix(1000, 0)
	s := scheduler{limit: 32, free: func([]byte) {}}
	var f [2]*flight
	for i := range f {
		f[i] = &flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}, srtt: 200e6, rttvar: 1e6, minRTT: 30e6, rate: 0.25e6}
		s.add(f[i])
	}
	s.write(make([]byte, 8*maxPayload), begin)
	for n := range 8 { // even ones over path 0
		s.take(f[n%2], begin)
	}
	now := begin.Add(f[0].patience())
	for _, beyond := range []uint64{0b1001, 0b1001, 0} { // 3 came over path 1, 6 over path 0; 2 is missing
		if err := s.ack(f[1], 2, 2, 32, beyond, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{2, 4} {
		if c := s.take(f[1], now); c == nil || c.number != want {
			t.Errorf("sends %+v again, not chunk %d", c, want)
		}
	}
	if c := s.take(f[1], now); c != nil {
		t.Errorf("sends chunk %d again, too", c.number)
	}
	if err := s.ack(f[1], 2, 2, 32, 1<<4, now); err != nil { // 7 is the last that was sent
		t.Error(err)
	}
	if err := s.ack(f[1], 2, 2, 32, 1<<5, now); !errors.Is(err, errAckUnsent) {
		t.Errorf("8 is said to have come, and was not sent: %v", err)
	}
}

// A path that has reached its cap does not keep those from sending that wait for it to fail.
func TestOthersSendAfterCap(t *testing.T) {
	now := time.Unix(1, 0)
	for name, p := range map[string]Policy{"backup": {Backup: true}, "share": {Share: 0.5}} {
		spent := &flight{ends: [2]end{{Policy{CapBytes: 1}, newMeter()}, {meter: newMeter()}}}
		other := &flight{ends: [2]end{{p, newMeter()}, {meter: newMeter()}}}
		other.ends[0].sent = 1 << 20
		s := &scheduler{limit: 16, sent: 1 << 20, free: func([]byte) {}}
		s.add(spent)
		s.add(other)
		s.write(make([]byte, maxPayload), now)
		if s.take(spent, now) != nil || s.take(other, now) == nil {
			t.Errorf("%s: the link at its cap sends, or the other one does not", name)
		}
	}
}

// Paths that carry nothing do not wait for each other, whatever they are, how much there is to send, and how little the peer has room for.
func TestSomebodyTakesWhatThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	now := time.Unix(1000, 0)
	for range rung.Times(100, 1000) {
		s := scheduler{limit: 1 + r.Uint64N(startWindow), free: func([]byte) {}}
		for range 2 + r.IntN(3) {
			rtt := time.Duration(1e9 * math.Pow(0.001, r.Float64()))
			s.add(&flight{ends: [2]end{{meter: newMeter()}, {meter: newMeter()}}, srtt: rtt, minRTT: rtt, rttvar: rtt / 10, rate: 1e9 * math.Pow(0.00001, r.Float64())})
		}
		s.write(make([]byte, 1+r.IntN(s.maxUnsent())), now)
		if !slices.ContainsFunc(s.flights, func(f *flight) bool { return s.take(f, now) != nil }) {
			for _, f := range s.flights {
				t.Logf("%.1f MB/s, %v", f.rate/1e6, f.minRTT)
			}
			t.Fatalf("with room for %d chunks, nobody takes any of %d bytes", s.limit, s.unsent)
		}
	}
}

// Whatever paths do, every chunk arrives, none is carried by more than two at a time, and policies hold.
func TestScheduleKeepsEverything(t *testing.T) {
	for seed := range uint64(rung.Times(4, 40)) {
		if err := torment(rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func torment(r *rand.Rand) error {
	now := time.Unix(0, 0)
	freed := 0
	s := scheduler{limit: 16, free: func(b []byte) { freed += len(b) - dataHeader }}
	in := reorder{}
	in.grow(16)
	type pathState struct {
		f      *flight
		flying []uint64 // chunk numbers, in order
		took   uint64
		pinned *chunk // is being written
	}
	var paths, gone []*pathState
	written, read, buf := 0, 0, make([]byte, 17*maxPayload)
	for step := 0; step < 3000 || read < written; step++ {
		now = now.Add(time.Duration(r.IntN(int(20 * time.Millisecond))))
		quiet := step >= 3000 // nothing breaks any more, everything must come through
		switch k := r.IntN(10); {
		case len(paths) == 0 || k == 0 && len(paths) < 5 && !quiet:
			p := &pathState{f: &flight{ends: [2]end{{Policy{Backup: r.IntN(4) == 0, Priority: r.IntN(3)}, newMeter()}, {meter: newMeter()}}}}
			p.f.sampleRTT(time.Duration(1+r.IntN(100)) * time.Millisecond)
			s.add(p.f)
			paths = append(paths, p)
		case k == 1 && !quiet && r.IntN(5) == 0:
			i := r.IntN(len(paths))
			s.remove(paths[i].f)
			gone = append(gone, paths[i])
			paths = append(paths[:i], paths[i+1:]...)
		case k < 4 && !quiet:
			written += s.write(make([]byte, r.IntN(maxPayload)), now)
		case k < 7:
			p := paths[r.IntN(len(paths))]
			if p.pinned != nil {
				if p.pinned.frame == nil {
					return fmt.Errorf("chunk %d was given back while it was written", p.pinned.number)
				}
				s.unpin(p.pinned)
				p.pinned = nil
			}
			if c := s.take(p.f, now); c != nil {
				c.pins++
				p.pinned = c
				if c.done || c.copies > 2 || c.number >= s.limit || c.size == 0 {
					return fmt.Errorf("gave out chunk %+v with limit %d", c, s.limit)
				}
				p.flying = append(p.flying, c.number)
			}
		default:
			p := paths[r.IntN(len(paths))]
			if len(p.flying) == 0 {
				continue
			}
			number := p.flying[0]
			p.flying = p.flying[1:]
			p.took++
			size := 0
			if number >= s.base {
				size = (*s.chunks.at(int(number - s.base))).size
			} else if number >= in.next {
				return fmt.Errorf("chunk %d is forgotten and has not arrived", number)
			} else {
				size = 1
			}
			if _, err := in.insert(number, make([]byte, size)); err != nil {
				return err
			}
			n, _ := in.take(buf)
			read += n
			in.grow(16)
			if err := s.ack(p.f, p.took, in.next, in.limit, in.beyond(), now); err != nil {
				return err
			}
		}
		if step > 100000 {
			return fmt.Errorf("stuck: read %d of %d, unsent %d, %d chunks", read, written, s.unsent, s.chunks.len())
		}
	}
	for _, p := range append(paths, gone...) {
		if p.pinned != nil {
			s.unpin(p.pinned)
		}
	}
	if !s.idle() || freed != written || in.held != 0 {
		return fmt.Errorf("%d chunks left, %d of %d bytes freed, %d held", s.chunks.len(), freed, written, in.held)
	}
	return nil
}
