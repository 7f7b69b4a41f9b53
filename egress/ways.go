package egress

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// waysFor is how long the round-trip time of a way nobody uses is remembered at least, where there is room, and twice that at most.
	waysFor = 10 * time.Minute
	// youngWays are the ways of one generation at most: the kernel half watches as many flows at a time, so those of one look are in one.
	youngWays = 1 << 17
	// waysAtOnce are written before others may read again.
	waysAtOnce = 256
)

// wayRTT is the round-trip time of a client's flows through an exit when one of them last did something, and the shortest they had.
type wayRTT struct{ us, leastUs float32 }

// ways remembers round-trip times of clients' flows by exit, in two generations: those used since the younger one began, and those used in the one before. What is in neither is forgotten, so
// those not used for longest go first. One goroutine writes; it may read without the lock.
type ways struct {
	sync.RWMutex
	young, old map[wayTo]wayRTT
	began      time.Time // the younger generation
}

func newWays() ways { return ways{young: map[wayTo]wayRTT{}} }

// find is for the goroutine that writes, and for who has the lock.
func (w *ways) find(k wayTo) (wayRTT, bool) {
	if r, is := w.young[k]; is {
		return r, true
	}
	r, is := w.old[k]
	return r, is
}

// rttUs is 0 where nothing is known.
func (w *ways) rttUs(exit string, client netip.Addr) float64 {
	w.RLock()
	defer w.RUnlock()
	r, _ := w.find(wayTo{exit, client})
	return float64(r.us)
}

// put takes in the loads of a look.
func (w *ways) put(loads []WayLoad, now time.Time) {
	for len(loads) > 0 {
		w.Lock()
		n := min(len(loads), waysAtOnce)
		for _, l := range loads[:n] {
			k := wayTo{l.Exit, l.Client}
			if _, is := w.young[k]; !is && len(w.young) >= youngWays {
				w.age(now)
			}
			w.young[k] = wayRTT{float32(l.RTTUs), float32(l.LeastRTTUs)}
		}
		w.Unlock()
		loads = loads[n:]
	}
	if now.Sub(w.began) >= waysFor {
		w.Lock()
		w.age(now)
		w.Unlock()
	}
}

// age begins a generation. The caller has the lock.
func (w *ways) age(now time.Time) { w.old, w.young, w.began = w.young, map[wayTo]wayRTT{}, now }
