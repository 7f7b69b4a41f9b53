package bgp

import (
	"fmt"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

// take handles one message of an established session.
func (s *session) take(kind uint8, body []byte, a *agreement) error {
	switch kind {
	case wire.BGP_MSG_KEEPALIVE, wire.BGP_MSG_ROUTE_REFRESH: // there is nothing to tell again
		return nil
	case wire.BGP_MSG_OPEN:
		return &protocolError{wire.BGP_ERROR_FSM_ERROR, wire.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE, nil,
			"the reflector sent an OPEN in an established session"}
	}
	s.work.Lock()
	defer s.work.Unlock()
	c := &s.speaker.config
	changes, end, err := understand(s.changes[:0], kind, body, a, scope{c.AS, c.RouterID, a.reflector, a.agreed, a.own}, s.speaker.interner)
	s.changes = changes
	if err != nil {
		return err
	}
	for i := range changes {
		s.apply(&changes[i])
	}
	if end >= 0 && a.agreed[end] && !s.tables[end].ended {
		s.endOf(Family(end))
	}
	return s.checkLimit()
}

// endOf notes that the reflector has told all routes of a family.
func (s *session) endOf(f Family) {
	t := &s.tables[f]
	t.ended = true
	t.sweepTold(s.withdraw)
	s.flushLocked()
	s.speaker.deliver(EndOfRIB{s.reflector.Address, f})
	if t.stale > 0 {
		t.late = s.after(lateTime, "the reflector is back, and did not tell them again", f)
	}
}

// understand reads a message: what it changes, appended to out, and of which family it ends the first telling, or -1.
func understand(out []change, kind uint8, body []byte, a *agreement, sc scope, n *interner) (changes []change, end int, err error) {
	defer survive(kind, body, &err)
	m, broken, err := parse(kind, body, &a.options)
	if err != nil {
		return out, -1, err
	}
	switch m := m.Body.(type) {
	case *wire.BGPNotification:
		return out, -1, &notified{m.ErrorCode, m.ErrorSubcode}
	case *wire.BGPUpdate:
		if is, f := m.IsEndOfRib(); is && broken == nil {
			return out, familyOf(f), nil
		}
		return convert(out, m, broken, sc, n), -1, nil
	}
	return out, -1, nil
}

// apply notes a change in the table and in the batch.
func (s *session) apply(c *change) {
	t := &s.tables[c.family]
	if was, is := t.refused[c.key]; is {
		delete(t.refused, c.key)
		s.refusing(was, -1)
	}
	if c.route != nil {
		t.put(c.key)
		s.add(egress.Update{Key: s.keyOf(c.key), Route: c.route})
		return
	}
	if c.refused != accepted {
		if t.refused == nil {
			t.refused = map[routeKey]refusal{}
		}
		t.refused[c.key] = c.refused
		s.refusing(c.refused, 1)
		s.count(c)
	}
	if t.drop(c.key) {
		s.withdraw(c.key)
	}
}

func (s *session) withdraw(k routeKey) { s.add(egress.Update{Key: s.keyOf(k)}) }

func (s *session) add(u egress.Update) {
	if s.batch = append(s.batch, u); len(s.batch) >= batchSize {
		s.flushLocked()
	}
}

// flush hands over what has come together.
func (s *session) flush() {
	s.work.Lock()
	defer s.work.Unlock()
	s.flushLocked()
}

// flushInTurn does so now, or after a pause if the reflector talks all the time. Then what comes meanwhile is handed over with it: of a route that comes and
// goes, the receiver does what it was last.
func (s *session) flushInTurn() {
	s.work.Lock()
	defer s.work.Unlock()
	if len(s.batch) == 0 || s.later != nil {
		return
	}
	wait := s.pace.take(time.Now())
	if wait == 0 {
		s.flushLocked()
		return
	}
	s.later = time.AfterFunc(wait, func() {
		s.work.Lock()
		defer s.work.Unlock()
		s.later = nil
		s.flushLocked()
	})
}

func (s *session) flushLocked() {
	if len(s.batch) == 0 {
		return
	}
	s.speaker.deliver(Routes{s.batch})
	clear(s.batch)
	s.batch = s.batch[:0]
	s.showTables()
}

func (s *session) keyOf(k routeKey) egress.Key {
	key := egress.Key{Reflector: s.reflector.Address, PathID: k.pathID, Prefix: k.prefix()}
	if k.distinguished {
		key.Distinguisher = s.speaker.interner.distinguisher(k.distinguisher)
	}
	return key
}

// checkLimit counts what the reflector has told in this session, and what of that is refused, since it is held as well. After a
// restart its path IDs, and so the keys of what was kept, may be others: that does not count.
func (s *session) checkLimit() error {
	sum, refused := 0, 0
	for f := range s.tables {
		sum += len(s.tables[f].known) - s.tables[f].stale
		refused += len(s.tables[f].refused)
	}
	sum += refused
	if limit := s.reflector.MaxPrefixes; sum > limit {
		return limitError{&protocolError{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED, nil,
			fmt.Sprintf("the reflector told %d routes, %d of them refused, its limit is %d: the session stays down until plait starts again; raise the limit or let the reflector tell less", sum, refused, limit)}}
	}
	return nil
}

// up begins an established session. What was kept of the one before goes at once if the reflector says that it did not keep its
// forwarding state (RFC 4724 section 4.2), else when it has told all.
func (s *session) up(a *agreement) {
	s.work.Lock()
	defer s.work.Unlock()
	s.stopTimer()
	s.show(func(out *Session) {
		out.turn(Established, time.Now())
		out.RouterID, out.Agreed = a.reflector, a.words()
	})
	s.log.Info("BGP session is up", "agreed", a.words())
	s.speaker.deliver(Up{s.reflector.Address, a.agreed})
	stale := 0
	for f := range s.tables {
		s.tables[f].ended = false
		if !a.keeps[f] || !a.forwarding[f] {
			s.tables[f].sweep(s.withdraw)
		}
		stale += s.tables[f].stale
	}
	s.flushLocked()
	if stale > 0 {
		s.startTimer(staleTime, "the reflector is back, but did not say that it told all routes")
	}
}

// down ends an established session: the routes are withdrawn, or kept for the time in which the reflector wants to be back.
func (s *session) down(a *agreement, why error) {
	s.work.Lock()
	defer s.work.Unlock()
	s.stopTimer()
	kept := 0
	for f := range s.tables {
		if t := &s.tables[f]; a.keeps[f] && a.survives(why) {
			kept += len(t.known) - t.stale
		}
	}
	s.set(Idle)
	s.speaker.deliver(Down{s.reflector.Address, why.Error(), kept})
	for f := range s.tables {
		t := &s.tables[f]
		t.sweep(s.withdraw)
		t.age()
		for _, why := range t.refused {
			s.refusing(why, -1)
		}
		t.refused = nil
		if !a.keeps[f] || !a.survives(why) {
			t.sweep(s.withdraw)
		}
	}
	s.flushLocked()
	s.showTables()
	if kept > 0 {
		s.startTimer(a.restartTime, "the reflector did not come back in the time it asked for")
	}
}

// survives reports whether routes outlive a session that ended for this reason: the reflector or the way to it failed. They do
// not if one side objected to what the other said, or wants it so (RFC 8538 section 3).
func (a *agreement) survives(why error) bool {
	if !a.restart || a.restartTime == 0 {
		return false
	}
	switch why := why.(type) { //nolint:errorlint // these are not wrapped
	case *protocolError, limitError:
		return false
	case *notified:
		return a.notifications && !(why.code == wire.BGP_ERROR_CEASE && why.sub == wire.BGP_ERROR_SUB_HARD_RESET)
	}
	return true
}

func (s *session) startTimer(after time.Duration, why string) {
	s.timer = s.after(after, why, IPv4, IPv6, VPNv4, VPNv6)
}

// after withdraws what is stale of some families then, unless the session has ended or begun meanwhile.
func (s *session) after(after time.Duration, why string, of ...Family) *time.Timer {
	epoch := s.epoch
	return time.AfterFunc(after, func() {
		s.work.Lock()
		defer s.work.Unlock()
		if s.epoch != epoch {
			return
		}
		gone := 0
		for _, f := range of {
			gone += s.tables[f].stale
			s.tables[f].sweep(s.withdraw)
		}
		s.flushLocked()
		s.showTables()
		if gone > 0 {
			s.log.Warn("kept routes are withdrawn", "routes", gone, "after", after, "reason", why)
		}
	})
}

func (s *session) stopTimer() {
	s.epoch++
	if s.timer != nil {
		s.timer.Stop()
	}
}
