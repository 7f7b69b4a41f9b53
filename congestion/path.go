package congestion

import "plait.dev/plait/signals"

const (
	// leastForUs is how long, up to twice, the shortest round trip of a path is remembered, in microseconds: routes change. What it is made of, Sample.MinRTTUs, may be 20 s old itself.
	leastForUs = 5_000_000
	// sameWay is how much longer than the path's, as a share of itself, a socket's least round trip may be to be taken for one with a queue in it. Behind one address there may be several hosts.
	sameWay = 0.25
	// rememberUs is how long, up to twice, votes are kept when the last socket of a path that had some has ended, in microseconds, and mostEnded of how many paths, up to twice, if there are more within that time.
	rememberUs, mostEnded = 300_000_000, 1 << 16
)

// votes are what losses say of a path.
type votes struct{ random, overflow float64 }

// path is what the sockets between the same two addresses find out together, one after the other too. They meet the same link and the same queue, and one of them may take the one for the other by chance.
type path struct {
	votes
	number          uint64
	sockets, voters int
	leastUs, lastUs uint32 // shortest round trip of this leastForUs, and of the one before; 0: none
	untilUs         uint64
}

// paths are those with sockets, by Sample.Path, and what was last found of those that nobody has votes for any more.
type paths struct {
	inUse         map[uint64]*path
	ended, before map[uint64]votes // of this rememberUs, and of the one before
	untilUs       uint64
}

// newPaths knows none yet.
func newPaths() *paths { return &paths{inUse: map[uint64]*path{}, ended: map[uint64]votes{}} }

// join returns the path of one socket more; one of its own if it is not known.
func (all *paths) join(number uint64) *path {
	on := all.inUse[number]
	if on == nil {
		on = &path{number: number}
		if number != 0 {
			all.inUse[number] = on
		}
	}
	on.sockets++
	return on
}

// leave ends a socket, with the votes that it had.
func (all *paths) leave(on *path, had votes) {
	on.change(had, votes{})
	if kept := all.remembered(on); on.number != 0 && had != (votes{}) && had.random+had.overflow >= (kept.random+kept.overflow)/2 {
		all.ended[on.number] = had
	}
	if on.sockets--; on.sockets == 0 {
		delete(all.inUse, on.number)
	}
}

// pass takes in that it is atUs, and forgets what is old.
func (all *paths) pass(atUs uint64) {
	switch {
	case atUs >= all.untilUs+rememberUs, atUs+2*rememberUs < all.untilUs: // or the clock began anew
		all.before, all.ended = nil, map[uint64]votes{}
	case atUs >= all.untilUs || len(all.ended) >= mostEnded:
		all.before, all.ended = all.ended, map[uint64]votes{}
	default:
		return
	}
	all.untilUs = atUs + rememberUs
}

// remembered returns the votes of the last socket of a path that had some and has ended, if it is not long ago, and not much less than one before it: of several at the same time most find out little.
func (all *paths) remembered(on *path) votes {
	if had, ok := all.ended[on.number]; ok {
		return had
	}
	return all.before[on.number]
}

// change takes in that a socket has other votes than before.
func (on *path) change(before, now votes) {
	if before == (votes{}) {
		on.voters++
	}
	if now == (votes{}) {
		on.voters--
	}
	on.random += now.random - before.random
	on.overflow += now.overflow - before.overflow
}

// others returns the mean votes of those who have some beside a socket with votes of its own, and how many they are.
func (on *path) others(own votes) (mean votes, n int) {
	if n = on.voters; own != (votes{}) {
		n--
	}
	if n > 0 { // differences of sums may be a little less than nothing
		mean = votes{max(on.random-own.random, 0) / float64(n), max(on.overflow-own.overflow, 0) / float64(n)}
	}
	return mean, n
}

// least is the least round trip in microseconds by which a socket's sample is read: the path's, which one that began while others kept a queue full has not seen yet.
func (on *path) least(s signals.Sample) uint32 {
	own := s.MinRTTUs
	if own == 0 {
		return 0
	}
	switch {
	case s.AtUs >= on.untilUs+leastForUs:
		on.lastUs, on.leastUs, on.untilUs = 0, 0, s.AtUs+leastForUs
	case s.AtUs >= on.untilUs:
		on.lastUs, on.leastUs, on.untilUs = on.leastUs, 0, on.untilUs+leastForUs
	}
	if on.leastUs == 0 || own < on.leastUs {
		on.leastUs = own
	}
	least := on.leastUs
	if on.lastUs != 0 {
		least = min(least, on.lastUs)
	}
	if on.sockets == 1 || float64(own-least) > sameWay*float64(own) {
		return own
	}
	return least
}
