// Package ackpath decides which acknowledgements of this host's MPTCP connections are copied over a quicker path, and has the words that the two hosts of a
// connection say to each other about it.
//
// The receiver of a download acknowledges each subflow over the subflow's own path. Where another path is much quicker, a copy of each pure ACK goes over that one, in a
// UDP tunnel to the sender, and is there first. The sender's congestion control corrects for it, so that the subflow takes no more from others than it would without
// (docs/ackpath/README.md). The package computes: nothing in it touches the network, and time is an argument.
//
//	go test ./ackpath
package ackpath

import (
	"fmt"
	"time"
)

const (
	// DefaultRatio is how many times the quick path's round trip the slow one's must be.
	DefaultRatio = 1.5
	// leastGain is how much longer it must be at the least: what is less does not show beside the jitter of a radio link.
	leastGain = 20 * time.Millisecond
	// leastLead is how much sooner than its twin a copy must arrive.
	leastLead = 5 * time.Millisecond
	// twinsLate is how long the twins of the first copies may be on their way.
	twinsLate = 5 * time.Second
	// fewCopies is what must have been sent before their absence, or lateness, means something.
	fewCopies = 10
	// answersMost is how many answers in a row must say the same before copying ends.
	answersMost = 3
	// goodAfter is how long copies must have been of use for the next pause to be a short one again.
	goodAfter = time.Minute
)

// Flow is what the policy remembers of one slow subflow and one quick path. The zero value is of a new one.
type Flow struct {
	copying  bool
	since    time.Time // it is copied
	pause    backoff
	because  string
	answer   uint64 // number of the last one taken in
	refused  int    // answers in a row that say that copies are not taken
	poor     int    // answers in a row that tell of no lead
	deaf     int    // answers in a row that tell of no copies
	blind    int    // answers in a row that tell of copies, and know nothing of their lead
	mute     int    // answers in a row between which data came, and nothing was copied
	sent     uint64 // copies, when the last answer was taken in
	told     Told   // in that answer
	answered bool   // since copying began
}

// Facts are what is known of a slow subflow and of one quick path now.
type Facts struct {
	// Slow is the way of the subflow, Quick that of the copies.
	Slow, Quick *Way
	// Handshake is the round trip of the subflow's handshake, or a shorter one since: it counts until a hello has come back over the slow way.
	Handshake time.Duration
	// New says that the subflow began a moment ago: the sender may not have it yet, or not under its congestion control, which takes it with its first data.
	New bool
	// SlowLink and QuickLink are their links' names, for the reason.
	SlowLink, QuickLink string
	// Answer is how many answers have told of the flow, Told what the last one said.
	Answer uint64
	Told   Told
	// Sent is how many copies this host has sent so far.
	Sent uint64
	// Receives says that the subflow has received data since the last answer or so.
	Receives bool
	// Observe says that the sender is asked nothing about flows, and nothing copied.
	Observe bool
}

// Decision is what is to be done with a subflow.
type Decision struct {
	// Ask the sender about it, in the hellos over the quick path.
	Ask bool
	// Copy its acknowledgements.
	Copy bool
	// Rest: few of them, until a loss or a pause, for the sender has no use for more now.
	Rest bool
	// Because is why, in words.
	Because string
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func (f Facts) slow() time.Duration {
	if rtt := f.Slow.RTT(); rtt > 0 {
		return rtt
	}
	return f.Handshake
}

// trips are the two round trips in words.
func (f Facts) trips() string {
	when := ""
	if f.Slow.RTT() == 0 {
		when = " by the subflow's handshake"
	}
	return fmt.Sprintf("%s over %s%s, %s over %s", ms(f.slow()), f.SlowLink, when, ms(f.Quick.RTT()), f.QuickLink)
}

// unanswered is why copies have no use where nobody takes them.
func (f Facts) unanswered() string {
	switch {
	case f.Quick.isNew():
		return fmt.Sprintf("the sender has not answered over %s yet", f.QuickLink)
	case f.Slow.RTT() > 0:
		return fmt.Sprintf("the sender does not answer over %s, and does over %s: the link has failed, or a firewall is between", f.QuickLink, f.SlowLink)
	}
	return fmt.Sprintf("the sender does not answer over %s: it runs no plait that takes copies, or a firewall is between", f.QuickLink)
}

const unfair = "the sender's congestion control does not correct for copies"

// worth says whether copies can arrive sooner by enough; if not, why.
func worth(ratio float64, f Facts) (why string, ok bool) {
	slow, quick := f.slow(), f.Quick.RTT()
	switch {
	case quick == 0:
		return f.unanswered(), false
	case slow == 0:
		return fmt.Sprintf("the sender does not answer over %s, so its round trip is not known", f.SlowLink), false
	case float64(slow) < ratio*float64(quick):
		return fmt.Sprintf("%s: less than %g times as long", f.trips(), ratio), false
	case slow-quick < leastGain:
		return fmt.Sprintf("%s: less than %s to gain", f.trips(), ms(leastGain)), false
	case !f.Quick.Fair():
		return unfair, false
	}
	return f.trips(), true
}

// Pauses says whether copying, or asking, has ended for a while.
func (s *Flow) Pauses(now time.Time) bool { return !s.pause.over(now) }

// Stop ends copying, or asking, for a while.
func (s *Flow) Stop(now time.Time, why string) Decision {
	if s.copying && now.Sub(s.since) >= goodAfter {
		s.pause = backoff{}
	}
	s.copying = false
	s.refused, s.poor, s.deaf, s.blind, s.mute = 0, 0, 0, 0, 0
	s.pause.begin(now)
	s.because = why
	return Decision{Because: fmt.Sprintf("%s; tried again in %v", why, s.pause.length)}
}

// Leave ends copies without a pause: the way is gone for now, which says nothing against them.
func (s *Flow) Leave() { *s = Flow{pause: s.pause, because: s.because, answer: s.answer} }

// judge counts what a new answer says against copies; it returns why to end them, or nothing.
func (s *Flow) judge(now time.Time, f Facts) string {
	count := func(n *int, bad bool) bool {
		if *n++; !bad {
			*n = 0
		}
		return *n >= answersMost
	}
	arrived, late := f.Told.Copies-s.told.Copies, f.Told.Late-s.told.Late
	sent := f.Sent - s.sent
	first := !s.answered
	s.answer, s.sent, s.told, s.answered = f.Answer, f.Sent, f.Told, true
	if first { // there is nothing to compare it with
		return ""
	}
	lead := time.Duration(f.Told.LeadUs) * time.Microsecond
	switch {
	case count(&s.mute, f.Receives && sent == 0):
		return fmt.Sprintf("data comes over %s, and there is no ACK that can be copied: TCP timestamps are off here or at the sender (sysctl net.ipv4.tcp_timestamps), all ACKs go with data, or they leave by another link than the route says (a mark, several next hops), or encrypted (IPsec)", f.SlowLink)
	case count(&s.deaf, sent >= fewCopies && arrived == 0):
		return fmt.Sprintf("copies do not arrive: something on the way over %s drops them", f.QuickLink)
	case count(&s.poor, lead > 0 && lead < leastLead || arrived >= fewCopies && 2*late > arrived):
		return fmt.Sprintf("copies over %s arrive %s before their twins, less than %s is no gain", f.QuickLink, ms(lead), ms(leastLead))
	case count(&s.blind, lead == 0 && arrived >= fewCopies && now.Sub(s.since) >= twinsLate):
		return fmt.Sprintf("the sender's socket has nothing of copies over %s that could be measured and corrected: something drops them there (rp_filter, a socket bound to another interface), or changes timestamps or sequence numbers on the way over %s, or their twins, which come by it, are not seen", f.QuickLink, f.SlowLink)
	}
	return ""
}

// Decide says what to do with a slow subflow and one quick path. It is called whenever something is new, and once a second at least. ratio is that of the
// configuration.
func (s *Flow) Decide(now time.Time, ratio float64, f Facts) Decision {
	if s.Pauses(now) {
		return Decision{Because: fmt.Sprintf("%s; tried again in %v", s.because, s.pause.until.Sub(now).Round(time.Second))}
	}
	if s.copying {
		return s.goOn(now, ratio, f)
	}
	why, ok := worth(ratio, f)
	fresh := f.Answer != s.answer
	switch {
	case !ok:
		return Decision{Because: why}
	case f.Told.State.takes() && fresh:
		s.copying, s.answered, s.since = true, false, now
		return Decision{Ask: true, Copy: true, Rest: f.Told.State == Resting, Because: why}
	case f.Observe:
		return Decision{Ask: true, Because: why + "; with mode on it would be copied, if the sender takes copies of this subflow"}
	case f.Told.State == Unasked || !fresh:
		return Decision{Ask: true, Because: why + "; the sender has not said yet whether it takes copies"}
	}
	s.answer = f.Answer
	if f.New || f.Told.State == Unmanaged && !f.Receives { // the sender takes a subflow with its first data, which may be its last chance to be of use
		return Decision{Ask: true, Because: f.Told.State.String()}
	}
	if s.refused++; s.refused >= answersMost {
		return s.Stop(now, f.Told.State.String())
	}
	return Decision{Ask: true, Because: f.Told.State.String()}
}

// goOn decides for a flow that is copied. It goes on with less than it takes to begin: half of what the ratio is above 1. A slow path whose hellos do not come back in time
// says nothing against copies: it may be as bloated as that.
func (s *Flow) goOn(now time.Time, ratio float64, f Facts) Decision {
	least := 1 + (ratio-1)/2
	switch slow, quick := f.Slow.RTT(), f.Quick.RTT(); {
	case quick == 0:
		return s.Stop(now, f.unanswered())
	case !f.Quick.Fair():
		return s.Stop(now, unfair)
	case slow > 0 && (quick >= slow || float64(slow) < least*float64(quick)):
		return s.Stop(now, fmt.Sprintf("%s: less than %g times as long by now", f.trips(), least))
	case !f.Told.State.takes():
		return s.Stop(now, f.Told.State.String())
	}
	if f.Answer != s.answer {
		if why := s.judge(now, f); why != "" {
			return s.Stop(now, why)
		}
	}
	lead := ""
	if f.Told.LeadUs > 0 {
		lead = fmt.Sprintf("; copies arrive %s before their twins", ms(time.Duration(f.Told.LeadUs)*time.Microsecond))
	}
	if f.Told.State == Resting {
		lead += "; " + Resting.String()
	}
	return Decision{Ask: true, Copy: true, Rest: f.Told.State == Resting, Because: f.trips() + lead}
}
