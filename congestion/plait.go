package congestion

import (
	"fmt"

	"plait.dev/plait/signals"
)

const (
	// randomLoss is the share of lost segments above which CUBIC's window, at least Reno's 1.2 / sqrt(share) packets (RFC 9438,
	// section 4.3), does not fill a path of some 40 packets any more.
	randomLoss = 0.001
	// queueShare and queueMinUs are what a round trip must exceed the least one by, as a share of it and in any case, to show a
	// queue: less is timing noise of hosts. burst asks the same (BURST_QUEUE_SHIFT, bpf/cc/burst.h).
	queueShare, queueMinUs = 1.0 / 16, 2000.0
	// burstQueueShare is the same for samples of bursts, which make a queue of their own with the ten packets they begin with: unless more than
	// heavyLoss is lost, and not by chance. Links that lose so much are rare, and many bursts at once that overrun a short queue are not.
	burstQueueShare, heavyLoss, heavyLost = 3.0 / 16, 0.1, 5
	// full is the share of the longest queue at a loss, of late, from which on a queue counts as full.
	full = 0.5
	// grown is the share of the mean queue of late that one at a loss has at least where it is full: the mean is of some packets after the loss, too. Where more than heavyLoss is lost while BBR sends, it is not asked: many that overrun a
	// short queue keep it full, and round trips at a loss differ by a packet or two, which is more than that share of it.
	grown = 0.95
	// enough is how many votes a control needs before transfers get it; enoughToLeave how many before they
	// leave BBR again, which makes a queue of its own when it starts, and whatever the link loses then looks like its overflow.
	enough, enoughToLeave = 3, 5
	// severalRounds is how many round trips with losses are more than those of one overflow, which is found in one, or two while the queue drains: they tell BBR's own queue from one that overflows. mostVotes is how
	// many votes a sample of a transfer has at most: as many as decide. One of bursts has one: many that begin at once behind a short queue lose half of what they send, round trip after round trip, before one of them knows how
	// short the path is.
	severalRounds, mostVotes = 3, 4
	// memory is how many votes count: each takes an eighth from those before. One overflow, however many
	// segments it takes, is one vote. The longest queue while BBR sends is remembered for queueMemory of them: it makes one of a quarter of the round trip in one of eight, and few losses meet that.
	memory, queueMemory = 8, 32
)

// plait chooses by what the connection is limited by. While it is the application, burst. While it is the path, the losses say
// which control fits. A queue loses packets when it is full, so overflows come when the round trip is near its longest, however
// short the queue: CUBIC shares it fairly. The link's losses come at any round trip: BBR, which does not take them for
// congestion, keeps the rate. Losses count from the first burst on, so that a transfer starts with what suits its path.
type plait struct {
	votes
	queueUs    float64 // longest queue at a loss, of late
	leastUs    uint32  // round trip that it is measured from
	bulk       signals.Algorithm
	aggressive bool
	paths      *paths
	on         *path // nil: before the first sample
}

// newPlait makes policies for sockets that learn from each other.
func newPlait() func() Policy {
	all := newPaths()
	return func() Policy { return &plait{bulk: signals.Cubic, paths: all} }
}

// newAggressive is plait for whoever may take more than a CUBIC beside it would leave: transfers get BBR whatever they lose.
func newAggressive() Policy { return &plait{bulk: signals.BBR, aggressive: true, paths: newPaths()} }

// measureFrom takes in the least round trip. When it becomes longer, as it may when others of the path end, all queues become shorter, and those before would seem to have been longer.
func (p *plait) measureFrom(leastUs uint32) {
	if leastUs == 0 {
		return
	}
	if p.leastUs != 0 && leastUs > p.leastUs {
		p.queueUs = max(p.queueUs-float64(leastUs-p.leastUs), 0)
	}
	p.leastUs = leastUs
}

// remember counts what a sample's losses say, if they are more than a tenth of a percent and it is known how long the queue was.
func (p *plait) remember(s signals.Sample) {
	lost := s.LostSingle + s.LostBurst
	if float64(lost) <= randomLoss*float64(s.Delivered+lost) || s.RTTAtLossUs == 0 || s.MinRTTUs == 0 {
		return
	}
	queueUs := float64(s.RTTAtLossUs) - float64(s.MinRTTUs)
	longest := queueUs
	if p.queueUs >= max(queueShare*float64(s.MinRTTUs), queueMinUs) {
		longest = min(queueUs, 2*p.queueUs) // a round trip can have a wait for what was lost in it
	}
	remembered := float64(memory)
	if s.Algorithm == signals.BBR {
		remembered = queueMemory
	}
	p.queueUs = max(longest, p.queueUs-p.queueUs/remembered)
	overrun, count := p.isFull(s, s.RTTAtLossUs), 1
	if s.Algorithm == signals.BBR && s.LossyRounds >= severalRounds {
		overrun = p.isFull(s, s.RTTAtLossMinUs)
	}
	if s.Bulk && !overrun && !p.isFull(s, s.RTTAtLossMaxUs) {
		count = max(min(int(s.LossyRounds), mostVotes), 1)
	}
	before := p.votes
	if before == (votes{}) && p.on.voters == 0 {
		p.votes = p.paths.remembered(p.on)
	}
	for range count {
		p.random -= p.random / memory
		p.overflow -= p.overflow / memory
		if overrun {
			p.overflow++
		} else {
			p.random++
		}
	}
	p.on.change(before, p.votes)
}

// isFull says whether the queue that a round trip at a loss of the sample met was one that overflowed.
func (p *plait) isFull(s signals.Sample, rttUs uint32) bool {
	lost, minUs := s.LostSingle+s.LostBurst, float64(s.MinRTTUs)
	queueUs := float64(rttUs) - minUs
	heavy := lost >= heavyLost && float64(lost) > heavyLoss*float64(s.Delivered+lost)
	share := burstQueueShare
	if s.Bulk || heavy {
		share = queueShare
	}
	if queueUs < max(share*minUs, queueMinUs) {
		return false
	}
	if s.Algorithm == signals.BBR && !heavy && queueUs < grown*(float64(s.SRTTUs)-minUs) {
		return false // a queue that has grown since was not full
	}
	return queueUs >= full*p.queueUs
}

// evidence is the votes that a control of transfers is chosen by.
type evidence struct {
	votes
	others int32 // sockets on the path whose mean is in there
	ended  bool  // it is of one that has ended
}

func (e evidence) String() string {
	why := fmt.Sprintf("of the last samples with losses %.1f were without a full queue and %.1f with one", e.random, e.overflow)
	switch {
	case e.ended:
		why += ", by a connection between the same addresses that has ended"
	case e.others > 0:
		why += fmt.Sprintf(", here and in the mean of others between the same addresses (%d)", e.others)
	}
	return why
}

// transfer is the control of transfers, by the socket's own votes and, for as much, the mean of the others' on its path; while nobody has any, by those of the last that has ended. It changes only on evidence.
func (p *plait) transfer() (signals.Algorithm, evidence) {
	mean, others := p.on.others(p.votes)
	if p.on.voters == 0 {
		mean = p.paths.remembered(p.on)
	}
	v := votes{p.random + mean.random, p.overflow + mean.overflow}
	switch {
	case p.aggressive:
		p.bulk = signals.BBR
	case v.random >= enough && v.random > 2*v.overflow:
		p.bulk = signals.BBR
	case p.bulk == signals.BBR && v.overflow < enoughToLeave:
	case v.overflow >= enough && v.overflow > 2*v.random:
		p.bulk = signals.Cubic
	}
	return p.bulk, evidence{v, int32(others), p.on.voters == 0 && mean != (votes{})}
}

// Choose implements Policy.
func (p *plait) Choose(s signals.Sample) Choice {
	if p.on == nil {
		p.on = p.paths.join(s.Path)
	}
	p.paths.pass(s.AtUs)
	own := s.MinRTTUs
	s.MinRTTUs = p.on.least(s)
	p.measureFrom(s.MinRTTUs)
	p.remember(s)
	bulk, by := p.transfer()
	aggressive, limited, least := p.aggressive, s.Bulk, s.MinRTTUs
	return Choice{Algorithm: signals.Burst, Bulk: bulk, Because: func() string {
		why := "the application is the limit, it sends in bursts; "
		if limited {
			why = "the path is the limit; "
		}
		if aggressive {
			why += "allow is aggressive"
		} else {
			why += by.String()
		}
		if least < own {
			why += fmt.Sprintf("; another's least round trip is %.1f ms", float64(least)/1000)
		}
		return why
	}}
}

// End implements Policy.
func (p *plait) End() {
	if p.on != nil {
		p.paths.leave(p.on, p.votes)
		p.on = nil
	}
}
