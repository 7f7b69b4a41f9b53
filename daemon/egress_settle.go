package daemon

import (
	"net/netip"
	"time"

	"plait.dev/plait/egress/bgp"
)

// Until the plan is complete, as far as can be told, the kernel keeps what a plait before this one left: routes that are not told again yet would be missing.
const (
	// settleAfter is how long reflectors may be silent before they have told all.
	settleAfter = 30 * time.Second
	// settleAtMost is how long they may tell: one may never say that it has told all, and never be silent.
	settleAtMost = 5 * time.Minute
	// settleQuiet is how long the others may take when one has told all.
	settleQuiet = time.Second
)

// telling is what reflectors have still to tell for the first time.
type telling struct {
	began  time.Time
	untold map[netip.Addr]map[bgp.Family]bool // of those whose session is up
	told   bool                               // one has told all
}

func newTelling(now time.Time) *telling {
	return &telling{began: now, untold: map[netip.Addr]map[bgp.Family]bool{}}
}

// hear takes in an event and says for how long more to wait, if it changes that.
func (t *telling) hear(event bgp.Event, now time.Time) (wait time.Duration, changed bool) {
	switch e := event.(type) {
	case bgp.Up:
		t.untold[e.Reflector] = map[bgp.Family]bool{}
		for f, agreed := range e.Agreed {
			if agreed {
				t.untold[e.Reflector][bgp.Family(f)] = true
			}
		}
	case bgp.Down:
		delete(t.untold, e.Reflector)
	case bgp.EndOfRIB:
		delete(t.untold[e.Reflector], e.Family)
		if left, up := t.untold[e.Reflector]; up && len(left) == 0 {
			t.told = true
			return settleQuiet, true
		}
	}
	if t.told {
		return 0, false
	}
	return max(0, min(settleAfter, t.began.Add(settleAtMost).Sub(now))), true
}
