package stripe

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// LinkStats is what a link does for a connection.
type LinkStats struct {
	Name          string  // of its interface
	SentBytes     uint64  // of the stream, without headers
	CopiedBytes   uint64  // of these, what another path had carried, too
	ReceivedBytes uint64  // of the stream, copies included
	SendBps       float64 // bits per second, averaged over about a second
	ReceiveBps    float64 // the same
	Paths         []PathStats
	Error         string `json:",omitempty"` // why it is not used, in words; at the end, why it was not by then
}

// NotYet is LinkStats.Error of a link that is still tried for the first time.
const NotYet = "no answer yet"

// PathStats is what one path does.
type PathStats struct {
	To     string // the peer's link
	Local  netip.AddrPort
	Remote netip.AddrPort
	State  PathState
	RTT    time.Duration // smoothed, until the peer's acknowledgement of a chunk: queues are included
}

// PathState says how a path is.
type PathState string

// The states of a path.
const (
	Working PathState = "working"
	Silent  PathState = "silent"  // an answer is overdue; what it carries goes over other paths, too
	Spent   PathState = "spent"   // its link has reached its cap
	Resting PathState = "resting" // it leaves its link to another path over it: both would wait in one queue
)

// Stats tells of each link of this host that has a path, had one, or should have one, by name.
func (c *Conn) Stats() []LinkStats { return c.stats(false) }

// PeerStats tells the same of the peer's links: what this host has sent to each, and received from it. Why one is not used is known to the end
// that dialed.
func (c *Conn) PeerStats() []LinkStats { return c.stats(true) }

func (c *Conn) stats(far bool) []LinkStats {
	failures := map[string]string{}
	if c.failures != nil {
		failures = c.failures(far)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	links, meters := map[string]*LinkStats{}, c.meters
	if far {
		meters = c.farMeters
	}
	for name, m := range meters {
		links[name] = &LinkStats{Name: name, SentBytes: m.sent, CopiedBytes: m.copied, ReceivedBytes: m.received}
	}
	for _, p := range c.paths {
		l := links[p.link]
		if far {
			l = links[p.to]
		}
		l.SendBps += 8 * p.out.bps
		l.ReceiveBps += 8 * p.in.bps
		l.Paths = append(l.Paths, p.stats(now))
	}
	for name, why := range failures {
		if links[name] == nil {
			links[name] = &LinkStats{Name: name}
		}
		links[name].Error = why
	}
	out := make([]LinkStats, 0, len(links))
	for _, l := range links {
		slices.SortFunc(l.Paths, func(a, b PathStats) int { return cmp.Or(cmp.Compare(a.To, b.To), a.Local.Compare(b.Local)) })
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b LinkStats) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (p *path) stats(now time.Time) PathStats {
	s := PathStats{To: p.to, State: Working, RTT: p.flight.srtt}
	s.Local, s.Remote = addrPort(p.wire.LocalAddr()), addrPort(p.wire.RemoteAddr())
	switch {
	case p.flight.spent():
		s.State = Spent
	case p.flight.silent(now):
		s.State = Silent
	case p.c.out.rests(p.flight, now):
		s.State = Resting
	}
	return s
}
