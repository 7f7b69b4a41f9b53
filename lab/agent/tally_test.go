package agent

import (
	"testing"

	"plait.dev/plait/lab/emu"
)

// TestTally: every sample has counters of its own, however soon it follows another one, and asks for all directions at once.
func TestTally(t *testing.T) {
	asked := uint64(0)
	all := &tally{ask: func() (map[string]emu.Stats, error) {
		asked++
		one := emu.DirectionStats{Bytes: asked}
		return map[string]emu.Stats{"a": {Forward: one, Backward: one}, "b": {Forward: one, Backward: one}}, nil
	}}
	directions := []func() uint64{}
	for _, link := range []string{"a", "b"} {
		for _, forward := range []bool{true, false} {
			read := all.totals(link, forward)
			directions = append(directions, func() uint64 { return read().Bytes })
		}
	}
	for sample := uint64(1); sample <= 3; sample++ {
		for i, read := range directions {
			if got := read(); got != sample {
				t.Errorf("sample %d of direction %d has the counters of answer %d", sample, i, got)
			}
		}
	}
}
