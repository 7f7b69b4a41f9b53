package mptcp

import (
	"net/netip"
	"time"
)

// budget is a token bucket: commands per second, a tenth of them at once. A connection that is begun is brought to its end, so it can be overdrawn by
// the commands of one connection.
type budget struct {
	perSecond float64
	tokens    float64
	at        time.Time
}

func (b *budget) left(now time.Time) bool {
	if b.at.IsZero() {
		b.tokens = b.perSecond / 10
	} else if now.After(b.at) {
		b.tokens = min(b.perSecond/10, b.tokens+now.Sub(b.at).Seconds()*b.perSecond)
	}
	if b.at.IsZero() || now.After(b.at) {
		b.at = now
	}
	return b.tokens >= 1
}

func (b *budget) take() { b.tokens-- }

// next is when there is something left.
func (b *budget) next(now time.Time) time.Time {
	if b.left(now) {
		return now
	}
	return now.Add(time.Duration((1-b.tokens)/b.perSecond*float64(time.Second)) + time.Microsecond)
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
