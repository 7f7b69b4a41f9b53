package mptcp

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// budget of commands per second, a tenth of them at once. A connection that is begun is brought to its end, so it can be overdrawn by the commands of one
// connection.
type budget struct {
	*rate.Limiter
	at time.Time // of the last look
}

func newBudget(perSecond int) budget {
	return budget{Limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/10))}
}

func (b *budget) left(now time.Time) bool {
	b.at = now
	return b.TokensAt(now) >= 1
}

func (b *budget) take() { b.ReserveN(b.at, 1) }

// next is when there is something left.
func (b *budget) next(now time.Time) time.Time {
	wait := time.Duration((1 - b.TokensAt(now)) / float64(b.Limit()) * float64(time.Second))
	return now.Add(max(0, wait+time.Microsecond))
}

// prefixSet finds out whether an address is within one of many prefixes: one look-up for each length that occurs.
type prefixSet struct {
	lengths  map[int]bool // of IPv4 negative, so that 0.0.0.0/0 is -1
	prefixes map[netip.Prefix]bool
}

func newPrefixSet(prefixes []netip.Prefix) prefixSet {
	s := prefixSet{map[int]bool{}, make(map[netip.Prefix]bool, len(prefixes))}
	for _, p := range prefixes {
		p = p.Masked()
		s.prefixes[p] = true
		if p.Addr().Is4() {
			s.lengths[-p.Bits()-1] = true
		} else {
			s.lengths[p.Bits()] = true
		}
	}
	return s
}

func (s prefixSet) contains(a netip.Addr) bool {
	for n := range s.lengths {
		if a.Is4() != (n < 0) {
			continue
		}
		if n < 0 {
			n = -n - 1
		}
		if p, err := a.Prefix(n); err == nil && s.prefixes[p] {
			return true
		}
	}
	return false
}
