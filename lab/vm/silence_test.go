package vm

import (
	"strings"
	"testing"
	"time"
)

// A guest that says nothing is hanging when its emulator has computed or slept for maxSilence; not when the host gives it no
// core, or little of one.
func TestSilence(t *testing.T) {
	look := maxSilence / looks
	for name, test := range map[string]struct {
		computes time.Duration // of every look
		awake    bool
		speaks   int // at this look
		end      int // the look at which it is given up; 0 if it is not
		want     string
	}{
		"idle":               {end: 15, want: "it said nothing for 15m0s, in which the emulator computed for 0s and otherwise slept"},
		"polls now and then": {computes: look / 1000, end: 15, want: "computed for 900ms"},
		"computes":           {computes: look, awake: true, end: 15, want: "it said nothing for 15m0s, in which the emulator computed for 15m0s"},
		"on a slow host":     {computes: look / 4, awake: true, end: 60, want: "it said nothing for 1h0m0s, in which the emulator computed for 15m0s"},
		"starved":            {awake: true},
		"speaks":             {computes: look, awake: true, speaks: 14, end: 29, want: "it said nothing for 15m0s"},
	} {
		s := silence{}
		end, why := 0, ""
		for i := 1; i <= 100 && end == 0; i++ {
			heard := 0
			if test.speaks > 0 && i >= test.speaks {
				heard = 1
			}
			if why = s.over(time.Duration(i)*look, heard, use{time.Duration(i) * test.computes, test.awake}); why != "" {
				end = i
			}
		}
		if end != test.end || !strings.Contains(why, test.want) {
			t.Errorf("%s: given up at look %d, want %d: %q", name, end, test.end, why)
		}
	}
}
