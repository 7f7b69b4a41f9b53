package egress

import "time"

const (
	// muchSlower is how many times as long round trips through an exit are as through the one that brings most, and slowBy how much longer, for it to be slow.
	muchSlower = 2
	slowBy     = 50 * time.Millisecond
)

// Pace is what a flow of a connection did for a moment.
type Pace struct {
	Exit  string
	Bytes uint64 // acknowledged
	RTTUs uint32 // at its end; 0: not known
	// Waits says that it had more to send than the exit took.
	Waits bool
}

// Slow says whether a connection is better off without an exit, one of whose flows has become slow: it brings little beside the one that brings most, and late, and no data waits for any
// other. What it was given, the peer waits for.
func Slow(paces []Pace, exit string) bool {
	sums := map[string]*Pace{}
	for _, p := range paces {
		s := sums[p.Exit]
		if s == nil {
			s = &Pace{Exit: p.Exit}
			sums[p.Exit] = s
		}
		s.Bytes += p.Bytes
		if s.RTTUs == 0 || p.RTTUs > 0 && p.RTTUs < s.RTTUs {
			s.RTTUs = p.RTTUs
		}
		if p.Waits && p.Exit != exit {
			return false
		}
	}
	slow, top := sums[exit], &Pace{}
	for name, s := range sums {
		if name != exit && s.Bytes > top.Bytes {
			top = s
		}
	}
	if slow == nil || top.RTTUs == 0 {
		return false
	}
	return slow.RTTUs >= muchSlower*top.RTTUs && slow.RTTUs >= top.RTTUs+uint32(slowBy.Microseconds()) && float64(slow.Bytes) < smallShare*float64(top.Bytes)
}
