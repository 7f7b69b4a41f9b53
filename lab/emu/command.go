package emu

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/experiment"
)

// call has the emulator's thread run f between packets and waits until it has.
func (e *emulator) call(f func(now time.Duration)) error {
	done := make(chan struct{})
	e.commands <- func(now time.Duration) {
		f(now)
		close(done)
	}
	if _, err := unix.Write(e.wake, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		return fmt.Errorf("wake emulator: %w", err)
	}
	<-done
	return nil
}

// runCommands runs the command that waits, and tells whether there was one.
func (e *emulator) runCommands(now time.Duration) bool {
	if e.poll[len(e.poll)-1].Revents == 0 {
		return false
	}
	var counter [8]byte
	_, _ = unix.Read(e.wake, counter[:]) // sets it back; there is nothing to learn from the value
	select {
	case f := <-e.commands:
		f(now)
		return true
	default:
		return false
	}
}

// handle carries out one request.
func (e *emulator) handle(r request) (a answer) {
	var err error
	failed := e.call(func(now time.Duration) {
		switch {
		case r.Change != nil:
			err = e.change(now, r.Change)
		case r.Blackhole != nil:
			err = e.blackhole(r.Blackhole)
		case r.Carrier != nil:
			err = e.carrier(r.Carrier)
		case r.Stats != nil:
			a.Stats = e.stats()
		default:
			err = fmt.Errorf("empty request")
		}
	})
	if failed != nil {
		err = failed
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

func (e *emulator) wire(name string) (*wire, error) {
	for _, w := range e.wires {
		if w.name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("no emulated link %q", name)
}

func (e *emulator) change(now time.Duration, c *change) error {
	w, err := e.wire(c.Link)
	if err != nil {
		return err
	}
	forward, backward := w.directions[0].line, w.directions[1].line
	if hasWiMAX(&c.Forward) && hasWiMAX(&c.Backward) && (forward.needsNew(&c.Forward, c.Seed) || backward.needsNew(&c.Backward, c.Seed)) {
		// Both follow one terminal, which begins its way with the models.
		forward.built = max(forward.built, backward.built)
		backward.built = forward.built
		if err := forward.replace(now, c.Forward, c.Seed); err != nil {
			return err
		}
		return backward.replace(now, c.Backward, c.Seed)
	}
	if err := forward.Change(now, c.Forward, c.Seed); err != nil {
		return err
	}
	return backward.Change(now, c.Backward, c.Seed)
}

func hasWiMAX(d *experiment.Direction) bool { return d != nil && (d.WiMAX != nil || hasWiMAX(d.Then)) }

func (e *emulator) blackhole(b *blackhole) error {
	w, err := e.wire(b.Link)
	if err != nil {
		return err
	}
	holes, ok := map[string][2]bool{"forward": {true, false}, "backward": {false, true}, "both": {true, true}, "none": {}}[b.Direction]
	if !ok {
		return fmt.Errorf("blackhole in direction %q, want forward, backward, both or none", b.Direction)
	}
	for i := range w.directions {
		w.directions[i].line.SetBlackhole(holes[i])
	}
	return nil
}

func (e *emulator) carrier(c *carrier) error {
	w, err := e.wire(c.Link)
	if err != nil {
		return err
	}
	w.down = !c.Up
	for i := range w.directions {
		if err := w.directions[i].from.setCarrier(c.Up); err != nil {
			return err
		}
	}
	return nil
}

// stats copies all counters.
func (e *emulator) stats() map[string]Stats {
	all := map[string]Stats{}
	for _, w := range e.wires {
		all[w.name] = Stats{Forward: w.directions[0].counters(), Backward: w.directions[1].counters()}
	}
	return all
}

func (d *direction) counters() DirectionStats {
	s := d.stats
	s.Drops += uint64(d.line.Dropped())
	s.QueuePackets, s.QueueBytes = d.line.Queued()
	return s
}
