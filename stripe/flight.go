package stripe

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// silenceMin is the least time beyond the expected one after which a chunk counts as overdue. Acknowledgements of TCP
	// come back at once, but a process may be kept from its CPU, and Wi-Fi retries, for tens of milliseconds.
	silenceMin = 100 * time.Millisecond
	// twoPackets is what TCP acknowledges together, in bytes: on slow links that takes a while.
	twoPackets = 2 * 1500
	// firstRTT is assumed before anything is measured.
	firstRTT = 200 * time.Millisecond
)

// carried is one chunk on its way over one path.
type carried struct {
	c         *chunk
	at        time.Time // taken
	delivered uint64    // of the flight, in bytes, when it was taken
	since     time.Time // when that much had been delivered
	idle      bool      // it left while there was a gap on its way: what it shows of the rate is a lower bound
}

// flight is what is under way on one path, and what its acknowledgements tell. Times are given, never taken.
type flight struct {
	ends [2]end // of the path: this host's link and the peer's
	near *meter // of the dialer's

	fifo  queue[carried]
	bytes int // payload in fifo

	received  uint64 // chunks the peer has acknowledged on this path
	delivered uint64 // bytes of them
	limited   uint64 // delivered will be this when the last gap is over: the path had room and nothing was sent
	lastAck   time.Time
	heard     time.Time // TCP's last acknowledgement, of anything; looked up when the path is doubtful
	pingAt    time.Time // of the ping without answer; zero: there is none
	srtt      time.Duration
	rttvar    time.Duration
	minRTT    time.Duration
	packetRTT time.Duration // looked up every tickEvery
	rate      float64       // bytes per second; 0: not known
	sent      uint64        // bytes, with copies
}

// end is a link at one end of a path, what it may be used for, and what goes over it. The dialer tells the listener its policy: it
// cannot refuse what is sent to it.
type end struct {
	Policy
	*meter
}

// meter counts the bytes of the stream that go over a link, by all of its paths; and what its cap is for.
type meter struct {
	sent, copied, received uint64
	used                   *atomic.Uint64
}

func newMeter() *meter { return &meter{used: new(atomic.Uint64)} }

// spent reports whether the link has reached its cap.
func (e end) spent() bool { return e.Policy.spent(e.used.Load()) }

// spent reports whether the link at either end has reached its cap.
func (f *flight) spent() bool { return f.either(end.spent) }

// backup reports whether the path is for times without any other.
func (f *flight) backup() bool { return f.either(func(e end) bool { return e.Backup }) }

// shared reports whether the path has a share only.
func (f *flight) shared() bool { return f.either(func(e end) bool { return e.Share > 0 }) }

// sated reports whether it has had it, of all bytes sent.
func (f *flight) sated(all uint64) bool {
	return f.either(func(e end) bool { return e.Share > 0 && float64(e.sent) > e.Share*float64(all)+shareSlack })
}

// priority is that of the later end.
func (f *flight) priority() int { return max(f.ends[0].Priority, f.ends[1].Priority) }

func (f *flight) either(is func(end) bool) bool { return is(f.ends[0]) || is(f.ends[1]) }

var errAckUnsent = errors.New("peer acknowledges chunks that were not sent")

// put notes that the path carries c from now on.
func (f *flight) put(c *chunk, now time.Time) {
	since := f.lastAck
	if f.fifo.len() == 0 || since.IsZero() {
		since = now
	}
	f.fifo.push(carried{c: c, at: now, delivered: f.delivered, since: since, idle: f.limited >= f.delivered})
	f.bytes += c.size
	f.sent += uint64(c.size)
	for _, e := range f.ends {
		e.sent += uint64(c.size)
		e.used.Add(uint64(c.size))
		if c.copies > 0 {
			e.copied += uint64(c.size)
		}
	}
	c.carriers[c.copies] = f
	c.copies++
}

// pass notes that the path has room, and sends nothing.
func (f *flight) pass() { f.limited = f.delivered + uint64(f.bytes) }

// acked takes the peer's count of chunks that came over this path, and hands each of them to done.
func (f *flight) acked(received uint64, now time.Time, done func(*chunk)) error {
	if received > f.received+uint64(f.fifo.len()) {
		return errAckUnsent
	}
	for ; f.received < received; f.received++ {
		e := f.fifo.pop()
		f.bytes -= e.c.size
		f.delivered += uint64(e.c.size)
		f.lastAck = now
		f.sampleRate(e, now)
		if f.received+1 == received {
			f.sampleRTT(now.Sub(e.at))
		}
		done(e.c)
	}
	return nil
}

// sampleRTT is RFC 6298's estimator. What it measures is the time to the peer's acknowledgement: queues included, and the
// serialization of a chunk.
func (f *flight) sampleRTT(rtt time.Duration) {
	if f.srtt == 0 {
		f.srtt, f.rttvar, f.minRTT = rtt, rtt/2, rtt
		return
	}
	f.rttvar += ((f.srtt - rtt).Abs() - f.rttvar) / 4
	f.srtt += (rtt - f.srtt) / 8
	f.minRTT = min(f.minRTT, rtt)
}

// sampleRate is what was delivered between a chunk's departure and its acknowledgement, over that time (as in
// draft-cheng-iccrg-delivery-rate-estimation). A sample with a gap before it can only raise the estimate.
func (f *flight) sampleRate(e carried, now time.Time) {
	took := now.Sub(e.since)
	if took <= 0 {
		return
	}
	rate := float64(f.delivered-e.delivered) / took.Seconds()
	switch {
	case rate > f.rate && (f.rate == 0 || e.idle):
		f.rate = rate
	case !e.idle:
		f.rate += (rate - f.rate) / 8
	}
}

// arrival is how long n more bytes would take to the peer if they were sent now: what is on its way must be through first, and
// half a round trip is the least.
func (f *flight) arrival(n int) time.Duration {
	return max(f.minRTT+f.through(n), f.through(f.bytes+n)) - f.minRTT/2
}

// through is how long the path takes to carry n bytes; 0 while its rate is not known.
func (f *flight) through(n int) time.Duration {
	if f.rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / f.rate * float64(time.Second))
}

// expected is when what was sent at a time, and is not acknowledged, should be with the peer. What should have been acknowledged by now will take
// some more of what round trips vary by.
func (f *flight) expected(at, now time.Time) time.Time {
	if now.After(at.Add(f.srtt)) {
		return now.Add(f.rttvar)
	}
	return at.Add(f.srtt - f.minRTT/2)
}

// patience is how long the path may take for an acknowledgement before what it carries counts as overdue.
func (f *flight) patience() time.Duration {
	if f.srtt == 0 {
		return firstRTT + 2*firstRTT
	}
	return f.srtt + max(4*f.rttvar, silenceMin)
}

// silentSince is from when on the path counts as silent, as things are; zero if it owes no answer. While TCP hears from its peer it
// repairs a loss, which takes a round trip more; longer than that it is not believed: data of the peer counts as hearing from it, and
// the peer may be a proxy. If it has heard since what is owed was sent, and then nothing for half a round trip, that says more than what
// round trips vary by.
func (f *flight) silentSince() time.Time {
	oldest := f.owedSince()
	if oldest.IsZero() {
		return time.Time{}
	}
	at := oldest.Add(f.patience())
	at = later(at, earlier(f.heard.Add(silenceMin), at.Add(f.srtt)))
	if f.heard.After(oldest) {
		quiet := f.heard.Add(max(silenceMin, f.srtt/2) + f.through(twoPackets))
		at = earlier(at, later(quiet, oldest.Add(f.srtt)))
	}
	return later(at, f.lastAck.Add(silenceMin)) // slower than ever, but answering
}

// owedSince is when what the path owes an answer to was sent; zero if there is nothing.
func (f *flight) owedSince() time.Time {
	if f.fifo.len() > 0 && (f.pingAt.IsZero() || f.fifo.at(0).at.Before(f.pingAt)) {
		return f.fifo.at(0).at
	}
	return f.pingAt
}

// doubtful reports whether it is time to look up what TCP has heard: an answer is late, and none came for a while.
func (f *flight) doubtful(now time.Time) bool {
	oldest := f.owedSince()
	return !oldest.IsZero() && !now.Before(later(oldest.Add(f.srtt), f.lastAck.Add(silenceMin)))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// silent reports whether an answer is overdue.
func (f *flight) silent(now time.Time) bool {
	since := f.silentSince()
	return !since.IsZero() && !now.Before(since)
}
