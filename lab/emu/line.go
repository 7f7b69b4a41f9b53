package emu

import (
	"reflect"
	"slices"
	"strconv"
	"time"

	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/link"
)

// Line is one direction of a link with everything that happens to packets there. It is a link.Model.
type Line struct {
	link   string
	name   string
	spec   experiment.Direction
	seed   uint64
	gate   link.Gate
	stages *stages
	// chains are the models: those in use, last, and those that were replaced while packets were inside.
	chains []*started
	built  int
	// dropped is what chains that are gone have dropped.
	dropped int64
}

// started is a chain of models that began at a time: their own time counts from there.
type started struct {
	link.Model
	at time.Duration
}

// Build makes the models of one direction of a link; they begin at time now. The names of link and direction and the seed
// determine all random processes.
func Build(now time.Duration, link, direction string, d experiment.Direction, seed uint64) (*Line, error) {
	l := &Line{link: link, name: direction}
	if err := l.replace(now, d, seed); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Line) replace(now time.Duration, d experiment.Direction, seed uint64) error {
	// Models that are replaced are followed by random processes of their own, not by the same ones again.
	b := builder{seed: seed, link: l.link, direction: l.name, place: strconv.Itoa(l.built)}
	s, err := b.build(&d)
	if err != nil {
		return err
	}
	l.spec, l.seed, l.stages = d, seed, s
	l.chains = append(l.chains, &started{link.Chain(b.models...), now})
	l.built++
	l.retire()
	return nil
}

// Change gives the line the parameters of d, which is complete, at once. Rate, queue, delay and loss change for the
// packets inside as the models' Set methods say. If other models are needed, or another seed, they take the packets
// that come from now on, and what is inside the old ones comes out as it would have. All that is due at now must have
// been received. After an error nothing has changed.
func (l *Line) Change(now time.Duration, d experiment.Direction, seed uint64) error {
	if l.needsNew(&d, seed) {
		return l.replace(now, d, seed)
	}
	l.spec = d
	l.stages.change(now-l.current().at, &d)
	return nil
}

// needsNew says that the models there are cannot take these parameters.
func (l *Line) needsNew(d *experiment.Direction, seed uint64) bool {
	return seed != l.seed || !reflect.DeepEqual(modelsOf(d), modelsOf(&l.spec))
}

// modelsOf is the direction without the parameters that can change in place.
func modelsOf(d *experiment.Direction) *experiment.Direction {
	if d == nil {
		return nil
	}
	models := *d
	models.RateMbps, models.QueuePackets, models.QueueBytes, models.LossPercent, models.DelayMs = nil, nil, nil, nil, nil
	if d.Trace != nil { // a recording is known by its file, and may be long
		trace := *d.Trace
		trace.OpportunitiesMs = nil
		models.Trace = &trace
	}
	models.Then = modelsOf(d.Then)
	return &models
}

func (l *Line) current() *started { return l.chains[len(l.chains)-1] }

// retire forgets replaced chains with nothing left inside.
func (l *Line) retire() {
	current := l.current()
	l.chains = slices.DeleteFunc(l.chains, func(c *started) bool {
		_, busy := c.Next()
		if busy || c == current {
			return false
		}
		l.dropped += c.Dropped()
		return true
	})
}

// SetBlackhole drops all packets that enter from now on, or lets them in again.
func (l *Line) SetBlackhole(on bool) { l.gate.SetClosed(on) }

// Send implements link.Model.
func (l *Line) Send(now time.Duration, p link.Packet) {
	l.gate.Send(now, p)
	if p, ok := l.gate.Receive(now); ok {
		l.current().Send(now-l.current().at, p)
	}
}

// first is the chain from which a packet comes out next, and when.
func (l *Line) first() (c *started, at time.Duration, ok bool) {
	for _, chain := range l.chains {
		if t, has := chain.Next(); has && (!ok || chain.at+t < at) {
			c, at, ok = chain, chain.at+t, true
		}
	}
	return c, at, ok
}

// Next implements link.Model. Nothing comes out before that time; something may not even then.
func (l *Line) Next() (time.Duration, bool) {
	_, at, ok := l.first()
	return at, ok
}

// Receive implements link.Model.
func (l *Line) Receive(now time.Duration) (link.Packet, bool) {
	for {
		c, at, ok := l.first()
		if !ok || at > now {
			return link.Packet{}, false
		}
		p, ok := c.Receive(at - c.at)
		if len(l.chains) > 1 {
			l.retire()
		}
		if ok {
			return p, true
		}
	}
}

// Queued implements link.Model.
func (l *Line) Queued() (packets, bytes int) {
	for _, c := range l.chains {
		p, b := c.Queued()
		packets, bytes = packets+p, bytes+b
	}
	return packets, bytes
}

// Dropped implements link.Model.
func (l *Line) Dropped() int64 {
	n := l.dropped + l.gate.Dropped()
	for _, c := range l.chains {
		n += c.Dropped()
	}
	return n
}
