package bgp

import (
	"net/netip"
	"slices"
	"time"
)

// State is that of a session: those of RFC 4271 section 8.2.2, and Shut.
type State uint8

// The states. An Idle session waits for its next attempt; one that is Shut stays so as long as the Speaker runs.
const (
	Idle State = iota
	Connect
	OpenSent
	OpenConfirm
	Established
	Shut
)

var stateNames = [...]string{"idle", "connect", "open sent", "open confirm", "established", "shut"}

func (s State) String() string { return stateNames[s] }

// Session is how a session is, at the moment of the question.
type Session struct {
	Reflector netip.Addr
	State     State
	Since     time.Time     // it is established, or is not: attempts to connect change nothing about that
	Uptime    time.Duration // if established
	RouterID  netip.Addr    // of the reflector, once it has said it
	Agreed    []string      // families, capabilities and TCP-AO key of the session, or of the one before
	Prefixes  [families]int // routes that are announced, by family; kept ones too
	Stale     [families]int // of these: kept from a session that was lost
	LastError string
	ErrorAt   time.Time
	Refused   []Refused // reasons that occurred
}

// snapshot copies the state for someone who asks.
func (s *session) snapshot() Session {
	s.status.Lock()
	defer s.status.Unlock()
	out := s.shown
	if out.State == Established {
		out.Uptime = time.Since(out.Since)
	}
	out.Agreed = slices.Clone(out.Agreed)
	if len(out.Agreed) > 0 && len(s.reflector.AOKeys) > 0 {
		out.Agreed = append(out.Agreed, "TCP-AO: "+s.reflector.AOKeys[s.key].ids())
	}
	for i := range s.refuse {
		if s.refuse[i].Count > 0 {
			out.Refused = append(out.Refused, s.refuse[i])
		}
	}
	return out
}

func (s *session) show(change func(*Session)) {
	s.status.Lock()
	defer s.status.Unlock()
	change(&s.shown)
}

// turn takes in another state.
func (s *Session) turn(state State, now time.Time) {
	if s.Since.IsZero() || (state == Established) != (s.State == Established) {
		s.Since = now
	}
	s.State = state
}

func (s *session) set(state State) {
	s.show(func(out *Session) { out.turn(state, time.Now()) })
}

func (s *session) showTables() {
	s.show(func(out *Session) {
		for f := range s.tables {
			out.Prefixes[f], out.Stale[f] = len(s.tables[f].known), s.tables[f].stale
		}
	})
}

// failed notes why a session ended or did not begin. The same reason again is not worth a line in the log.
func (s *session) failed(why error, established bool) {
	again := false
	s.show(func(out *Session) {
		again = out.LastError == why.Error()
		out.ErrorAt = time.Now()
		out.turn(Idle, out.ErrorAt)
		out.LastError = why.Error()
	})
	switch {
	case established:
		s.log.Warn("BGP session ended", "reason", why)
	case !again:
		s.log.Warn("BGP session does not come up", "reason", why)
	}
}

// refusing notes that one route more, or less, is refused now.
func (s *session) refusing(why refusal, routes int64) {
	s.status.Lock()
	s.refuse[why].Routes += uint64(routes)
	s.status.Unlock()
}

// count notes a refused route. The first for each reason goes to the log.
func (s *session) count(c *change) {
	key := s.keyOf(c.key)
	route := key.Prefix.String()
	if key.Distinguisher != "" {
		route += " of " + key.Distinguisher
	}
	s.status.Lock()
	r := &s.refuse[c.refused]
	r.Reason, r.Last, r.At = c.refused.String(), route, time.Now()
	r.Count++
	first := r.Count == 1
	s.status.Unlock()
	if first {
		s.log.Warn("route refused; further ones for this reason are only counted", "route", route, "family", c.family, "reason", c.refused)
	}
}
