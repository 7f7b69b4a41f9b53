package congestion

import (
	"fmt"
	"io/fs"
	"math"
	"slices"

	"plait.dev/plait/signals"
)

// rtcp is the choice of R-TCP: N. Oguchi's doctoral thesis (SOKENDAI, 2016) on dynamic switching of TCP congestion control
// for interactive communication, section 4.5, steps 1 to 7. See docs/congestion/rtcp.md for what the thesis leaves open.
type rtcp struct {
	tables          *tables
	nonburst, burst signals.Average // p_r and p_b
	last            Choice
}

// newRTCP returns what makes policies that share an embedded set of tables.
func newRTCP(set string) (func() Policy, error) {
	dir, err := fs.Sub(embedded, "table/"+set)
	if err != nil {
		return nil, err
	}
	t, err := readTables(dir)
	if err != nil {
		return nil, fmt.Errorf("read tables %s: %w", set, err)
	}
	return func() Policy { return &rtcp{tables: t} }, nil
}

// measure updates both loss rates and reports whether a period ended. The thesis counts lost packets (section 4.2) and
// names no denominator; here it is the packets sent that were heard of: delivered or lost.
func (p *rtcp) measure(s signals.Sample) bool {
	sent := uint64(s.Delivered) + uint64(s.LostSingle) + uint64(s.LostBurst)
	p.nonburst.Add(s.AtUs, s.IntervalUs, s.EveryUs, uint64(s.LostSingle), sent)
	return p.burst.Add(s.AtUs, s.IntervalUs, s.EveryUs, uint64(s.LostBurst), sent)
}

// bottleneck is the free bandwidth, in kbit/s, at which the algorithm in use has the burst loss nearest to the observed one.
// Of two as near, the wider: without burst losses the largest bandwidth counts (section 6.3.4). An algorithm without a column is
// read as CUBIC, the system's default.
func (p *rtcp) bottleneck(rttMs float64, inUse signals.Algorithm) float64 {
	g := p.tables.bottleneck
	if !slices.Contains(g.algorithms, inUse) {
		inUse = signals.Cubic
	}
	distance := func(kbps float64) float64 { return math.Abs(g.at(rttMs, kbps, inUse) - 100*p.burst.Value()) }
	best := g.entries[0]
	for _, kbps := range g.entries {
		if distance(kbps) <= distance(best) {
			best = kbps
		}
	}
	return best
}

// scores are L(i) = L_r(i) + L_b(i) of all candidates.
func (p *rtcp) scores(rttMs, loss, kbps float64) []Score {
	var scores []Score
	for _, a := range p.tables.nonburst.algorithms {
		lossMs, bottleneckMs := 1000*p.tables.nonburst.at(rttMs, loss, a), 1000*p.tables.burst.at(rttMs, kbps, a)
		scores = append(scores, Score{a, lossMs + bottleneckMs, lossMs, bottleneckMs})
	}
	return scores
}

// least is the score with the least latency. Of two as small, the algorithm in use, otherwise the one with the lower number.
func least(scores []Score, inUse signals.Algorithm) Score {
	best := scores[0]
	for _, s := range scores {
		if s.LatencyMs < best.LatencyMs || s.LatencyMs == best.LatencyMs && s.Algorithm == inUse {
			best = s
		}
	}
	return best
}

// because says which score won, against that of the algorithm in use, and where in the tables both are.
func (p *rtcp) because(s signals.Sample, best Score, scores []Score, rttMs, kbps float64) Reason {
	inUse, srttUs, nonburst, burst := s.Algorithm, s.SRTTUs, p.nonburst.Value(), p.burst.Value()
	return func() string {
		why := fmt.Sprintf("at RTT %.0f ms (table %g ms), non-burst loss %.3g %% and burst loss %.3g %% (bottleneck %g kbit/s)",
			float64(srttUs)/1000, rttMs, 100*nonburst, 100*burst, kbps)
		if best.Algorithm == inUse {
			return fmt.Sprintf("%s has the least score, %.1f ms, %s", best.Algorithm, best.LatencyMs, why)
		}
		scored := "is not a candidate"
		if i := slices.IndexFunc(scores, func(c Score) bool { return c.Algorithm == inUse }); i >= 0 {
			scored = fmt.Sprintf("%.1f ms", scores[i].LatencyMs)
		}
		return fmt.Sprintf("%s scores %.1f ms and %s %s, %s", best.Algorithm, best.LatencyMs, inUse, scored, why)
	}
}

// keep is the choice as long as there is nothing to choose by.
func (p *rtcp) keep(s signals.Sample, because string) Choice {
	if p.last.Because == nil {
		p.last = Choice{Algorithm: s.Algorithm, Bulk: s.Algorithm, Because: known(because)}
	}
	return p.last
}

// Choose implements Policy.
func (p *rtcp) Choose(s signals.Sample) Choice {
	if !p.measure(s) { // steps 1 and 7
		return p.keep(s, "the first period of 200 ms is not over")
	}
	if s.SRTTUs == 0 {
		return p.keep(s, "no RTT has been measured")
	}
	rttMs := nearest(p.tables.nonburst.rttsMs, float64(s.SRTTUs)/1000)
	loss := nearest(p.tables.nonburst.entries, p.nonburst.Value()) // step 2
	kbps := p.bottleneck(rttMs, s.Algorithm)                       // step 3
	scores := p.scores(rttMs, loss, kbps)                          // steps 2, 4 and 5
	best := least(scores, s.Algorithm)                             // step 6
	p.last = Choice{best.Algorithm, best.Algorithm, p.because(s, best, scores, rttMs, kbps), scores}
	return p.last
}

// End implements Policy.
func (p *rtcp) End() {}
