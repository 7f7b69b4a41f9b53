package link

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The time structure of the cellular process. It is not fitted: the calibration counts in the same units.
const (
	cellularSlotMs     = 50                 // the rate is constant within a slot; short enough for the jumps of LTE scheduling, long enough for 1 packet in nearly every slot
	cellularOutageMin  = 2 * cellularSlotMs // milliseconds; an outage is a gap between opportunities at least this long, and with a packet in every slot only an outage is
	cellularLatentStep = 0.5                // distance of the knots of the rate on the latent axis, in standard deviations
	cellularLatentMax  = 3                  // the first and last knot; beyond them the rate stays
	cellularKnots      = int(2*cellularLatentMax/cellularLatentStep) + 1
)

// slotMbps is the rate of one packet per slot, in Mbit/s.
const slotMbps = opportunityBytes * 8.0 / (cellularSlotMs * 1000)

// cellularProfile is the parameters of one network and direction, written by the calibration.
type cellularProfile struct {
	name string
	// rateMbps is the rate outside outages where the latent process is -3, -2.5, ... 3 standard deviations.
	rateMbps [cellularKnots]float64
	// memory is the parts of the latent process: Ornstein-Uhlenbeck processes whose shares of the variance sum to 1.
	memory [3]cellularMemory
	// clump is the probability that an opportunity falls into the millisecond of the one before it.
	clump float64
	// outagesPerMin is how often outages begin, per minute without outage.
	outagesPerMin float64
	// outageTilt is how many standard deviations below its mean the latent process is where outages begin.
	outageTilt float64
	// outages is the kinds of outages: their shares sum to 1, and each has an exponential distribution of the time beyond
	// 100 ms.
	outages [2]cellularOutage
}

// cellularMemory is one part of the latent process: its share of the variance, and the time over which its
// autocorrelation falls to 1/e.
type cellularMemory struct{ share, seconds float64 }

// cellularOutage is one kind of outage: its share of all, and its mean time beyond the least, in milliseconds.
type cellularOutage struct{ share, meanMs float64 }

// CellularConfig selects and varies a cellular link.
type CellularConfig struct {
	// Profile is the network and direction to follow: one of CellularProfiles.
	Profile string
	// RateScale multiplies the rate, from 0.001 to 1000; 0 means 1. Far below 1 the low rate itself makes gaps as long as outages.
	RateScale float64
	// NoOutages leaves the outages out.
	NoOutages bool
	// Queue in front of the link.
	Queue QueueLimit
	// Seed of all that is random.
	Seed uint64
}

// Cellular is a cellular link to a moving user: a drop-tail queue in front of a random process of delivery
// opportunities that follows the statistics of a recorded network. docs/lab/link/cellular.md has the process, its
// parameters and how near it comes.
type Cellular struct{ *slotted }

// NewCellular makes a link at time 0 in its steady state. It returns an error for an unknown profile or a rate scale out of range.
func NewCellular(config CellularConfig) (*Cellular, error) {
	process, err := newCellularProcess(config)
	if err != nil {
		return nil, err
	}
	return &Cellular{newSlotted(process, config.Queue)}, nil
}

// CellularProfiles names the networks and directions that NewCellular knows.
func CellularProfiles() []string {
	var names []string
	for _, p := range cellularProfiles {
		names = append(names, p.name)
	}
	return names
}

// cellularProcess generates the opportunities, a slot at a time.
type cellularProcess struct {
	profile *cellularProfile
	// Streams of their own keep the rate the same whatever its scale, with and without outages.
	forLatent, forOutages, forPlaces *rand.Rand

	scale   float64
	outages float64 // probability that an outage begins after a slot in which the latent process is 0

	memory  [3]struct{ value, keep, renew, weight float64 }
	latent  float64       // the latent process in the slot
	owed    float64       // packets the rate has allowed so far and no opportunity has carried
	slot    time.Duration // start of the slot
	last    time.Duration // the last opportunity
	packets [cellularSlotMs]int32
	ms      int // the millisecond of the slot to look at next
}

func newCellularProcess(config CellularConfig) (*cellularProcess, error) {
	at := slices.IndexFunc(cellularProfiles, func(p cellularProfile) bool { return p.name == config.Profile })
	if at < 0 {
		return nil, fmt.Errorf("make cellular link: no profile %q; there are %s", config.Profile, strings.Join(CellularProfiles(), ", "))
	}
	scale := cmp.Or(config.RateScale, 1)
	if !(scale >= 0.001 && scale <= 1000) {
		return nil, fmt.Errorf("make cellular link: rate scale is %v; give one from 0.001 to 1000", scale)
	}
	p := &cellularProcess{
		profile:    &cellularProfiles[at],
		forLatent:  newRandom(config.Seed),
		forOutages: rand.New(rand.NewPCG(config.Seed, 1)),
		forPlaces:  rand.New(rand.NewPCG(config.Seed, 2)),
		scale:      scale,
		slot:       -cellularSlotMs * time.Millisecond,
		ms:         cellularSlotMs,
	}
	if !config.NoOutages {
		p.outages = p.profile.outageProbability()
	}
	for i, m := range p.profile.memory {
		keep := math.Exp(-cellularSlotMs / 1000. / m.seconds)
		p.memory[i].value = p.forLatent.NormFloat64()
		p.memory[i].keep, p.memory[i].renew = keep, math.Sqrt(1-keep*keep)
		p.memory[i].weight = math.Sqrt(m.share)
	}
	p.move()
	return p, nil
}

// outageProbability is the probability after a slot in which the latent process is 0. At z it is exp(-tilt*z) times that: then
// the latent process is normal with mean -tilt where outages begin, and its mean over all slots is exp(tilt^2/2) times that.
func (p *cellularProfile) outageProbability() float64 {
	return p.outagesPerMin / (60e3 / cellularSlotMs) * math.Exp(-p.outageTilt*p.outageTilt/2)
}

// outageLength draws the length of an outage.
func (c *cellularProcess) outageLength() time.Duration {
	kind := c.profile.outages[0]
	if c.forOutages.Float64() >= kind.share {
		kind = c.profile.outages[1]
	}
	return time.Duration(math.Round(cellularOutageMin+kind.meanMs*c.forOutages.ExpFloat64())) * time.Millisecond
}

// rate is the rate in Mbit/s where the latent process is z.
func (p *cellularProfile) rate(z float64) float64 {
	x := (min(max(z, -cellularLatentMax), cellularLatentMax) + cellularLatentMax) / cellularLatentStep
	k := min(int(x), cellularKnots-2)
	return p.rateMbps[k] + (x-float64(k))*(p.rateMbps[k+1]-p.rateMbps[k])
}

// move moves the latent process on by one slot.
func (c *cellularProcess) move() {
	c.latent = 0
	for i := range c.memory {
		m := &c.memory[i]
		m.value = m.keep*m.value + m.renew*c.forLatent.NormFloat64()
		c.latent += m.weight * m.value
	}
}

// place spreads packets over the milliseconds of the slot and returns the first one used.
func (c *cellularProcess) place(packets int) (first int) {
	clear(c.packets[:])
	first, ms := cellularSlotMs, 0
	for i := range packets {
		if i == 0 || c.forPlaces.Float64() >= c.profile.clump {
			ms = c.forPlaces.IntN(cellularSlotMs)
			first = min(first, ms)
		}
		c.packets[ms]++
	}
	return first
}

// nextSlot goes on to the next slot. An outage lasts from the last opportunity to the first of that slot.
func (c *cellularProcess) nextSlot() {
	outage := c.outages > 0 && c.forOutages.Float64() < c.outages*math.Exp(-c.profile.outageTilt*c.latent)
	c.move()
	c.owed += c.profile.rate(c.latent) / slotMbps * c.scale
	packets := int(c.owed)
	c.owed -= float64(packets)
	c.slot += cellularSlotMs * time.Millisecond
	c.ms = c.place(packets)
	if outage {
		c.slot += max(0, c.last+c.outageLength()-c.at())
	}
}

// at is the time of the millisecond to look at next.
func (c *cellularProcess) at() time.Duration { return c.slot + time.Duration(c.ms)*time.Millisecond }

// next implements opportunities: all packets of a millisecond are one opportunity.
func (c *cellularProcess) next() (time.Duration, int) {
	for c.ms == cellularSlotMs || c.packets[c.ms] == 0 {
		if c.ms == cellularSlotMs {
			c.nextSlot()
		} else {
			c.ms++
		}
	}
	c.last = c.at()
	packets := c.packets[c.ms]
	c.ms++
	return c.last, int(packets) * opportunityBytes
}
