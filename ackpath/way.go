package ackpath

import (
	"slices"
	"time"
)

const (
	// HelloEvery is the time between two hellos over a way.
	HelloEvery = time.Second
	// patience is how long an answer may take: a bloated line has round trips of seconds.
	patience = 5 * time.Second
	// unansweredMost is after how many hellos without answer a way counts as silent. Three in a row are lost once in 3 minutes of 10 % loss each way.
	unansweredMost = 3
	// A way that is silent, and a flow whose copies were of no use, is tried again after firstBackoff, then after twice as long each time.
	firstBackoff = 10 * time.Second
	lastBackoff  = 5 * time.Minute
	// rttsKept are the round trips of which the shortest counts. A busy host answers late now and then; a queue is in all of them.
	rttsKept = 4
)

// backoff is a pause that doubles.
type backoff struct {
	length time.Duration
	until  time.Time
}

// begin starts the next pause.
func (b *backoff) begin(now time.Time) {
	b.length = min(max(2*b.length, firstBackoff), lastBackoff)
	b.until = now.Add(b.length)
}

func (b *backoff) over(now time.Time) bool { return !now.Before(b.until) }

// Way is a way to a sender: over one link of this host, to one address of the sender. It is what its hellos tell. The zero value has asked nothing.
type Way struct {
	asked      []question      // those that may be answered yet, the oldest first
	unanswered int             // regular hellos since the last answer
	last       time.Time       // of the last regular hello
	counted    bool            // there is a round trip since then
	rtts       []time.Duration // the latest last
	fair       bool
	pause      backoff
}

type question struct {
	nonce uint64
	at    time.Time
}

// Ask says whether it is time for a hello, which is to be sent then. A way that was silent rests.
func (w *Way) Ask(now time.Time) bool {
	if !w.pause.over(now) || !w.last.IsZero() && now.Sub(w.last) < HelloEvery-HelloEvery/10 {
		return false
	}
	if w.unanswered >= unansweredMost {
		w.unanswered, w.rtts, w.counted, w.fair, w.asked, w.last = 0, nil, false, false, nil, time.Time{}
		w.pause.begin(now)
		return false
	}
	w.unanswered++
	w.last, w.counted = now, false
	return true
}

// Asked remembers a hello with this nonce that is sent now, also one between those that are due.
func (w *Way) Asked(now time.Time, nonce uint64) {
	for len(w.asked) > 0 && now.Sub(w.asked[0].at) > patience {
		w.asked = w.asked[1:]
	}
	w.asked = append(w.asked, question{nonce, now})
}

// Answered takes in an answer. It returns false if nothing with this nonce waits for one.
func (w *Way) Answered(now time.Time, nonce uint64, fair bool) bool {
	for i, q := range w.asked {
		if q.nonce != nonce {
			continue
		}
		w.measured(max(now.Sub(q.at), time.Microsecond))
		w.unanswered, w.fair, w.pause = 0, fair, backoff{}
		w.asked = append(w.asked[:i:i], w.asked[i+1:]...)
		return true
	}
	return false
}

// measured keeps a round trip. Hellos that are sent together, one behind the other, meet the same moment of a busy host: the shortest counts for all between two regular ones.
func (w *Way) measured(rtt time.Duration) {
	if w.counted {
		last := len(w.rtts) - 1
		w.rtts[last] = min(w.rtts[last], rtt)
		return
	}
	if len(w.rtts) == rttsKept {
		w.rtts = w.rtts[1:]
	}
	w.rtts, w.counted = append(w.rtts, rtt), true
}

// RTT is the shortest of the last round trips; 0: nothing answers.
func (w *Way) RTT() time.Duration {
	if len(w.rtts) == 0 {
		return 0
	}
	return slices.Min(w.rtts)
}

// isNew says that nothing was answered yet, and that there was time for an answer neither.
func (w *Way) isNew() bool { return len(w.rtts) == 0 && w.pause.length == 0 }

// Fair says whether the sender answers over this way, and that its congestion control corrects for copies.
func (w *Way) Fair() bool { return len(w.rtts) > 0 && w.fair }

// Silent says until when nothing is asked, because nothing was answered; the zero time: it is asked.
func (w *Way) Silent(now time.Time) time.Time {
	if w.pause.over(now) {
		return time.Time{}
	}
	return w.pause.until
}
