package emu

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/link"
)

// defaultQueuePackets is the limit of a queue that the experiment says nothing about.
const defaultQueuePackets = 1000

// stages are the models of one direction whose parameters can change while packets are inside.
type stages struct {
	fixed    *link.Fixed // nil if the capacity is another model
	capacity interface{ SetQueue(link.QueueLimit) }
	loss     *link.Loss
	delay    *link.Delay
	then     *stages
}

// builder collects the models of a direction, in the order in which a packet meets them.
type builder struct {
	seed      uint64
	link      string
	direction string
	// place tells models of the same kind in the direction apart: built before or after a change, and nested.
	place  string
	models []link.Model
}

// random is the seed of the named model's random process: a hash, so that a model more or less leaves the processes of
// the others alone.
func (b *builder) random(model string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %s %s", b.seed, b.link, b.direction, b.place, model))
	return binary.LittleEndian.Uint64(sum[:])
}

// randomOfLink is a seed that both directions of the link share.
func (b *builder) randomOfLink(model string) uint64 {
	both := builder{seed: b.seed, link: b.link, direction: "both", place: b.place}
	return both.random(model)
}

func (b *builder) add(m link.Model) { b.models = append(b.models, m) }

// build adds the models of d and of what is nested behind it.
func (b *builder) build(d *experiment.Direction) (*stages, error) {
	s := &stages{}
	if err := b.buildCapacity(s, d); err != nil {
		return nil, err
	}
	if g := d.GilbertElliott; g != nil {
		b.add(link.NewGilbertElliott(link.GilbertElliottConfig{P: g.PPercent / 100, R: g.RPercent / 100,
			LossGood: g.LossGoodPercent / 100, LossBad: g.LossBadPercent / 100, MACAttempts: max(g.MACAttempts, 1), Seed: b.random("gilbert_elliott")}))
	}
	s.loss = link.NewLoss(lossOf(d), b.random("loss"))
	b.add(s.loss)
	if j := d.Jitter; j != nil {
		limit := 10 * j.MeanMs
		if j.MaxMs != nil {
			limit = *j.MaxMs
		}
		b.add(link.NewJitter(link.JitterConfig{Mean: millis(j.MeanMs), Max: millis(limit), InOrder: j.InOrder, Seed: b.random("jitter")}))
	}
	if r := d.Reorder; r != nil {
		b.add(link.NewReorder(link.ReorderConfig{Probability: r.Percent / 100, Extra: millis(r.ExtraMs), Seed: b.random("reorder")}))
	}
	s.delay = link.NewDelay(delayOf(d))
	b.add(s.delay)
	if d.Then == nil {
		return s, nil
	}
	b.place += "/then"
	var err error
	s.then, err = b.build(d.Then)
	return s, err
}

// buildCapacity adds the queue and what empties it.
func (b *builder) buildCapacity(s *stages, d *experiment.Direction) error {
	queue := queueOf(d)
	switch {
	case d.Trace != nil:
		// Seeds count from 1.
		startS := d.Trace.StartS + d.Trace.SeedStepS*(max(float64(b.seed), 1)-1)
		m, err := link.NewTrace(link.TraceConfig{OpportunitiesMs: d.Trace.OpportunitiesMs, Start: millis(1000 * startS), Queue: queue})
		if err != nil {
			return fmt.Errorf("build trace link from %s: %w", d.Trace.File, err)
		}
		s.capacity = m
		b.add(m)
	case d.Cellular != nil:
		m, err := link.NewCellular(link.CellularConfig{Profile: d.Cellular.Profile, RateScale: d.Cellular.RateScale,
			NoOutages: d.Cellular.NoOutages, Queue: queue, Seed: b.random("cellular")})
		if err != nil {
			return err
		}
		s.capacity = m
		b.add(m)
	case d.WiMAX != nil:
		// Both directions follow the movement of one terminal.
		var direction uint64
		if b.direction == "backward" {
			direction = 1
		}
		m := link.NewWiMAX(link.WiMAXConfig{Direction: direction, SpeedMaxKmh: d.WiMAX.SpeedMaxKmh, CellRadiusM: d.WiMAX.CellRadiusM,
			ARQRetries: d.WiMAX.ARQRetries, Queue: queue, Seed: b.randomOfLink("wimax")})
		s.capacity = m
		b.add(m)
	default:
		s.fixed = link.NewFixed(link.FixedConfig{RateBps: rateOf(d), Queue: queue})
		s.capacity = s.fixed
		b.add(s.fixed)
	}
	return nil
}

// change gives the models the parameters of d, which must need the same models.
func (s *stages) change(now time.Duration, d *experiment.Direction) {
	if s.fixed != nil {
		s.fixed.SetRate(now, rateOf(d))
	}
	s.capacity.SetQueue(queueOf(d))
	s.loss.SetProbability(lossOf(d))
	s.delay.SetDelay(delayOf(d))
	if s.then != nil {
		s.then.change(now, d.Then)
	}
}

func rateOf(d *experiment.Direction) int64 {
	if d.RateMbps == nil {
		return 0
	}
	return int64(math.Round(*d.RateMbps * 1e6))
}

func queueOf(d *experiment.Direction) (q link.QueueLimit) {
	if d.QueuePackets != nil {
		q.Packets = *d.QueuePackets
	}
	if d.QueueBytes != nil {
		q.Bytes = *d.QueueBytes
	}
	if q == (link.QueueLimit{}) {
		q.Packets = defaultQueuePackets
	}
	return q
}

func lossOf(d *experiment.Direction) float64 {
	if d.LossPercent == nil {
		return 0
	}
	return *d.LossPercent / 100
}

func delayOf(d *experiment.Direction) time.Duration {
	if d.DelayMs == nil {
		return 0
	}
	return millis(*d.DelayMs)
}

func millis(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }
