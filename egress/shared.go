package egress

import (
	"net/netip"
	"time"
)

const (
	// busy is how many bytes an exit must bring a client between two looks to be of interest.
	busy = 32_000
	// sharedFor is how long what a trial found holds, for paths change. What finds no bottleneck is done again sooner: it costs less. Least of all does it cost to look whether round-trip times
	// move alike, which those of one queue need not do for some seconds, after a loss on one way for instance.
	sharedFor = 10 * time.Minute
	apartFor  = 30 * time.Second
	unlikeFor = 5 * time.Second
)

// Pair is two exits that may end in one bottleneck on the way to a client: With is that of the best path, Exit another one.
type Pair struct {
	Exit, With string
	Client     netip.Addr
}

// share is what is known of an exit and the best path's, seen from a client.
type share struct {
	with   string
	looked time.Time // when both were busy
	trying bool
	shared bool
	until  time.Time // when what a trial found is to be found again
}

// Shares remembers which exits end in one bottleneck on the way to a client, often its own access line: there a connection over both takes two shares of it from
// others and brings the client nothing. It is for one goroutine at a time.
type Shares map[wayTo]*share

// Shared says with which other exit this one shares a bottleneck on the way to the client; empty: none is known.
func (s Shares) Shared(exit string, client netip.Addr) (with string) {
	if one := s[wayTo{exit, client}]; one != nil && one.shared {
		return one.with
	}
	return ""
}

// Clients counts those for whom an exit shares a bottleneck with the best path's, by exit.
func (s Shares) Clients() map[string]int {
	out := map[string]int{}
	for k, one := range s {
		if one.shared {
			out[k.exit]++
		}
	}
	return out
}

// Look takes in what was done since the look before. It returns the pairs that were busy now and then, to be tried, each until Found or Unlike is called, and
// the clients for whom what was found is over.
func (s Shares) Look(loads []WayLoad, now time.Time) (tried []Pair, over []netip.Addr) {
	best := map[netip.Addr]WayLoad{}
	for _, l := range loads {
		if l.Best && l.Exit != "" && l.Bytes >= busy { // one that is none of the configuration's cannot be watched
			best[l.Client] = l
		}
	}
	for _, l := range loads {
		b, is := best[l.Client]
		if !is || l.Best || l.Bytes < busy {
			continue
		}
		k := wayTo{l.Exit, l.Client}
		one := s[k]
		if one == nil || !one.shared && !one.trying && one.with != b.Exit {
			s[k] = &share{with: b.Exit, looked: now}
			continue
		}
		if one.looked = now; !one.trying && !one.shared && !now.Before(one.until) {
			one.trying = true
			tried = append(tried, Pair{l.Exit, b.Exit, l.Client})
		}
	}
	for k, one := range s {
		if one.shared && !now.Before(one.until) {
			over = append(over, k.client)
		} else if one.shared || one.trying || one.looked.Equal(now) || now.Before(one.until) {
			continue
		}
		delete(s, k)
	}
	return tried, over
}

// Unlike takes in that a trial went no further than to look at round-trip times.
func (s Shares) Unlike(of Pair, now time.Time) {
	one := s[wayTo{of.Exit, of.Client}] // Look keeps it while it is tried
	one.trying, one.until = false, now.Add(unlikeFor)
}

// Found takes in what a trial found.
func (s Shares) Found(of Pair, shared bool, now time.Time) {
	one := s[wayTo{of.Exit, of.Client}]
	one.trying, one.shared, one.until = false, shared, now.Add(apartFor)
	if shared {
		one.until = now.Add(sharedFor)
	}
}
