package congestion

import (
	"fmt"

	"plait.dev/plait/signals"
)

const (
	// randomLoss is the share of lost segments above which CUBIC's window, 1.17 * sqrt(1 / p) packets at least (RFC 9438,
	// section 5.1: Reno's, which it never falls below), does not fill a path of some 40 packets any more.
	randomLoss = 0.001
	// standingQueue is the round trip at a loss, against the least one, from which on the loss is taken for an overflow.
	standingQueue = 1.25
	// agreeing is how many samples in a row must say the same before a transfer changes its congestion control.
	agreeing = 3
)

// plait chooses by what the connection is limited by. While it is the application, burst, which needs no help from here: the
// kernel half changes over by itself. While it is the path, a transfer's losses say which control fits: if the queue stands when
// packets are lost, the losses are its overflow and CUBIC shares it fairly; if it does not, they are the link's, and BBR, which
// does not take them for congestion, keeps the rate.
type plait struct {
	bulk   signals.Algorithm
	votes  int // samples in a row for a change
	reason string
}

func newPlait() Policy {
	return &plait{bulk: signals.Cubic, reason: "no loss has been seen that a full queue does not explain"}
}

// losses says which control the sample's losses speak for, and why.
func (p *plait) losses(s signals.Sample) (signals.Algorithm, string) {
	lost := s.LostSingle + s.LostBurst
	sent := s.Delivered + lost
	if sent == 0 || s.MinRTTUs == 0 || float64(lost) < randomLoss*float64(sent) {
		return p.bulk, p.reason
	}
	share := 100 * float64(lost) / float64(sent)
	if ratio := float64(s.RTTAtLossUs) / float64(s.MinRTTUs); s.RTTAtLossUs > 0 && ratio < standingQueue {
		return signals.BBR, fmt.Sprintf("%.2g %% of the segments are lost while the round trip is %.2f times its least: the link loses them, not a queue", share, ratio)
	} else if s.RTTAtLossUs > 0 {
		return signals.Cubic, fmt.Sprintf("%.2g %% of the segments are lost while the round trip is %.2f times its least: a queue overflows", share, ratio)
	}
	return p.bulk, p.reason
}

// Choose implements Policy.
func (p *plait) Choose(s signals.Sample) Choice {
	if !s.Bulk {
		return Choice{Algorithm: signals.Burst, Because: "the application is the limit: it sends in bursts"}
	}
	want, reason := p.losses(s)
	if want == p.bulk {
		p.votes = 0
	} else if p.votes++; p.votes >= agreeing {
		p.bulk, p.votes = want, 0
	}
	if want == p.bulk {
		p.reason = reason
	}
	return Choice{Algorithm: p.bulk, Because: "the path is the limit; " + p.reason}
}
