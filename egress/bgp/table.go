package bgp

import "time"

// table holds which routes of one reflector and family have been announced to the receiver of the events: so that exactly those
// are withdrawn, the limit counts, and a graceful restart knows what was not told again.
type table struct {
	known map[routeKey]bool // value: the round in which the route was told last
	round bool              // turns when the session is lost and routes are kept
	stale int               // routes of the other round

	ended   bool                 // the reflector has told all of it in this session; it says so once (RFC 4724 section 2)
	late    *time.Timer          // until what the reflector has not told again at its return goes
	refused map[routeKey]refusal // what the reflector tells and is not used
}

// put notes an announcement.
func (t *table) put(k routeKey) {
	round, ok := t.known[k]
	if ok && round != t.round {
		t.stale--
	}
	t.known[k] = t.round
}

// drop notes a withdrawal and reports whether the route had been announced.
func (t *table) drop(k routeKey) bool {
	round, ok := t.known[k]
	if !ok {
		return false
	}
	if round != t.round {
		t.stale--
	}
	delete(t.known, k)
	return true
}

// age makes all routes stale. What was stale before must be gone by then (RFC 4724 section 4.2): sweep.
func (t *table) age() {
	t.round = !t.round
	t.stale = len(t.known)
}

// sweep drops what is stale and calls gone for each, in no particular order.
func (t *table) sweep(gone func(routeKey)) {
	if t.stale == 0 {
		return
	}
	for k, round := range t.known {
		if round != t.round {
			delete(t.known, k)
			gone(k)
		}
	}
	t.stale = 0
}

// sweepTold drops what is stale of a destination of which anything has been told in this round, and calls gone for each.
func (t *table) sweepTold(gone func(routeKey)) {
	if t.stale == 0 {
		return
	}
	destination := func(k routeKey) routeKey {
		k.pathID = 0
		return k
	}
	told := map[routeKey]bool{}
	for k, round := range t.known {
		if round == t.round {
			told[destination(k)] = true
		}
	}
	for k, round := range t.known {
		if round != t.round && told[destination(k)] {
			delete(t.known, k)
			t.stale--
			gone(k)
		}
	}
}
