package egress

import (
	"slices"
	"time"
)

const (
	// muchSlower is how many times as long round trips through an exit are as through the one that brings most, and slowBy how much longer, for it to be slow.
	muchSlower = 2
	slowBy     = 50 * time.Millisecond
)

// Pace is what a flow of a connection did for a moment.
type Pace struct {
	Exit  string
	Bytes uint64 // acknowledged
	RTTUs uint32 // at its end
	// Waits says that it had more to send than the exit took.
	Waits bool
}

// Slow names the exits that a connection is better off without: each brings little beside the one that brings most, and late, and no data waits for any other. What they were given, the peer waits for.
func Slow(paces []Pace) (slow []string) {
	sum := map[string]*Pace{}
	var order []*Pace
	for _, p := range paces {
		s := sum[p.Exit]
		if s == nil {
			s = &Pace{Exit: p.Exit, RTTUs: p.RTTUs}
			sum[p.Exit] = s
			order = append(order, s)
		}
		s.Bytes += p.Bytes
		s.RTTUs = min(s.RTTUs, p.RTTUs)
		s.Waits = s.Waits || p.Waits
	}
	if len(order) == 0 {
		return nil
	}
	top := order[0]
	for _, s := range order {
		if s.Bytes > top.Bytes {
			top = s
		}
	}
	for _, s := range order {
		late := s.RTTUs >= muchSlower*top.RTTUs && s.RTTUs >= top.RTTUs+uint32(slowBy.Microseconds())
		waits := slices.ContainsFunc(order, func(o *Pace) bool { return o != s && o.Waits })
		if late && !waits && float64(s.Bytes) < smallShare*float64(top.Bytes) {
			slow = append(slow, s.Exit)
		}
	}
	return slow
}
