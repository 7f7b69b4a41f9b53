package agent

import (
	"plait.dev/plait/lab/emu"
	"plait.dev/plait/lab/measure"
)

// tally is what the emulator has counted. It is asked once for all links and directions of a sample. Used by one goroutine at a time.
type tally struct {
	ask     func() (map[string]emu.Stats, error)
	answers int // so many have come
	last    map[string]emu.Stats
	broken  error // why there was none, once
}

// totals gives the counters of a direction of a link, at every call those of another answer.
func (t *tally) totals(name string, forward bool) func() measure.Totals {
	had := 0
	return func() measure.Totals {
		if had == t.answers { // the first to be read of a sample
			var err error
			if t.last, err = t.ask(); err != nil {
				t.last, t.broken = nil, err
			}
			t.answers++
		}
		had = t.answers
		d := t.last[name].Forward
		if !forward {
			d = t.last[name].Backward
		}
		return measure.Totals{Bytes: d.Bytes, Packets: d.Packets, Drops: d.Drops, QueuePackets: d.QueuePackets}
	}
}
