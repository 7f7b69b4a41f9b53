package egress

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// busy is how many bytes an exit must bring a client between two looks to be of interest.
	busy = 32_000
	// sharedFor is how long what a trial found holds, for paths change. What finds no bottleneck is done again sooner: it costs less. Least of all does it cost to look whether round-trip times
	// move alike, which those of one queue need not do for some seconds, after a loss on one way for instance.
	sharedFor = 10 * time.Minute
	apartFor  = 30 * time.Second
	unlikeFor = 2 * time.Second
)

// Pair is two exits that may end in one bottleneck on the way to a client: With is that of the best path, Exit another one.
type Pair struct {
	Exit, With string
	Client     netip.Addr
}

// share is what is known of an exit and the best path's, seen from a client.
type share struct {
	with   string
	trying bool
	shared bool
	until  time.Time // when what a trial found is to be found again
}

// Shares remembers which exits end in one bottleneck on the way to a client, often its own access line: there a connection over both takes two shares of it from
// others and brings the client nothing. One goroutine looks; the rest is for any, who then waits for as long as it takes to go through what trials found.
type Shares struct {
	busy map[wayTo]string // the best path's exit, at the last look, where it was busy as well

	mu    sync.RWMutex // guards what follows
	known map[wayTo]*share
}

// NewShares knows of none yet.
func NewShares() *Shares { return &Shares{known: map[wayTo]*share{}} }

// Shared says with which other exit this one shares a bottleneck on the way to the client; empty: none is known.
func (s *Shares) Shared(exit string, client netip.Addr) (with string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if one := s.known[wayTo{exit, client}]; one != nil && one.shared {
		return one.with
	}
	return ""
}

// Clients counts those for whom an exit shares a bottleneck with the best path's, by exit.
func (s *Shares) Clients() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[string]int{}
	for k, one := range s.known {
		if one.shared {
			out[k.exit]++
		}
	}
	return out
}

// busyTwice are the pairs that were busy at this look and the one before.
func (s *Shares) busyTwice(loads []WayLoad) (pairs []Pair) {
	best, now := map[netip.Addr]string{}, map[wayTo]string{}
	for _, l := range loads {
		if l.Best && l.Exit != "" && l.Bytes >= busy { // one that is none of the configuration's cannot be watched
			best[l.Client] = l.Exit
		}
	}
	for _, l := range loads {
		with, is := best[l.Client]
		if !is || l.Best || l.Bytes < busy {
			continue
		}
		k := wayTo{l.Exit, l.Client}
		if now[k] = with; s.busy[k] == with {
			pairs = append(pairs, Pair{l.Exit, with, l.Client})
		}
	}
	s.busy = now
	return pairs
}

// Look takes in what was done since the look before. It returns pairs that were busy now and then, to be tried, each until Found or Unlike is called, at most so many, and
// the clients for whom what was found is over.
func (s *Shares) Look(loads []WayLoad, now time.Time, most int) (tried []Pair, over []netip.Addr) {
	pairs := s.busyTwice(loads)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, one := range s.known {
		if one.trying || now.Before(one.until) {
			continue
		}
		if one.shared {
			over = append(over, k.client)
		}
		delete(s.known, k)
	}
	for _, p := range pairs {
		if len(tried) >= most {
			break
		}
		k := wayTo{p.Exit, p.Client}
		if one := s.known[k]; one == nil || !one.trying && !one.shared && one.with != p.With {
			s.known[k] = &share{with: p.With, trying: true}
			tried = append(tried, p)
		}
	}
	return tried, over
}

// Unlike takes in that a trial went no further than to look at round-trip times.
func (s *Shares) Unlike(of Pair, now time.Time) { s.end(of, false, now.Add(unlikeFor)) }

// Found takes in what a trial found.
func (s *Shares) Found(of Pair, shared bool, now time.Time) {
	if shared {
		s.end(of, true, now.Add(sharedFor))
		return
	}
	s.end(of, false, now.Add(apartFor))
}

func (s *Shares) end(of Pair, shared bool, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.known[wayTo{of.Exit, of.Client}] // Look keeps it while it is tried
	one.trying, one.shared, one.until = false, shared, until
}
