package mptcp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What is announced: exits of the client's family, known ones, each once, not the connection's own address; only to clients of ours.
func TestAnnounces(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, a6, b4, a4, "192.0.2.99", b6)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.wants("announce 192.0.2.11, announce 192.0.2.12")
	r.handle(r.open(2, "[::ffff:192.0.2.1]:80", "[::ffff:198.51.100.1]:1000")...)
	r.wants("announce 192.0.2.11, announce 192.0.2.12")
	r.handle(r.open(3, "[2001:db8::1]:80", "[2001:db8:c::1]:1000")...)
	r.wants("announce 2001:db8::11, announce 2001:db8::12")
	r.handle(r.open(4, a4+":80", "198.51.100.1:1001")...) // came to an EPE address
	r.wants("announce 192.0.2.12")
	outgoing := r.open(5, "192.0.2.1:1000", "198.51.100.1:80")
	for i := range outgoing {
		outgoing[i].Server = false
	}
	r.handle(outgoing...)
	r.wants("")
}

// An exit that no longer reaches the client is withdrawn first and closed then; when it does again, it is announced again.
func TestReachabilityChanges(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"), r.join(1, b4+":80", "198.51.100.1:1002"))
	r.took()
	r.change()
	r.wants("") // nothing has changed
	r.reach(b4)
	r.change(netip.MustParsePrefix("203.0.113.0/24"))
	r.wants("") // another client's
	r.change(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.0.0/16"))
	r.wants("remove 192.0.2.11, destroy 192.0.2.11")
	r.reach(a4, b4)
	r.change(netip.MustParsePrefix("0.0.0.0/0"))
	r.wants("announce 192.0.2.11")
	r.reach()
	r.change()
	r.wants("remove 192.0.2.12, remove 192.0.2.11, destroy 192.0.2.12")
	r.handle(r.join(1, b4+":80", "198.51.100.1:1003")) // a client that did not see the RM_ADDR
	r.wants("destroy 192.0.2.12")
}

// The last subflow is left alone even where its exit does not lead to the client, and subflows on other addresses always.
func TestWhatIsNotClosed(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	events := r.open(1, "192.0.2.1:80", "198.51.100.1:1000")
	r.handle(events...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"), r.join(1, "192.0.2.50:80", "198.51.100.1:1002"))
	other := r.m.byToken[1].subflows[2]
	r.took()
	r.handle(Event{Type: SubClosed, Token: 1, Subflow: events[0].Subflow})
	r.reach()
	r.change()
	r.wants("remove 192.0.2.11, destroy 192.0.2.11")
	r.reach(a4)
	r.change()
	r.handle(r.join(1, a4+":80", "198.51.100.1:1003"), Event{Type: SubClosed, Token: 1, Subflow: other})
	r.took()
	r.reach()
	r.change()
	r.wants("remove 192.0.2.11")
}

// The first subflow is closed if its address is to be avoided and there is another on a wanted exit, and not before.
func TestAvoid(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	r.exits = append(r.exits, ExitAddress{Addr: netip.MustParseAddr("192.0.2.1"), Avoid: true})
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.wants("announce 192.0.2.11")
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"))
	r.wants("destroy 192.0.2.1")
	r.handle(r.join(1, a4+":80", "198.51.100.1:1002"))
	r.wants("")
}

// An exit the first subflow leaves by already is announced when that one goes; where both are, the exit's own is a backup.
func TestSameExit(t *testing.T) {
	r := newRig(t, Config{})
	r.exits = []ExitAddress{{Addr: netip.MustParseAddr(a4), Same: true}, {Addr: netip.MustParseAddr(b4)}}
	events := r.open(1, "192.0.2.1:80", "198.51.100.1:1000")
	r.handle(events...)
	r.wants("announce 192.0.2.12")
	r.handle(r.join(1, b4+":80", "198.51.100.1:1001"))
	r.exits[0].Same, r.exits[1].Same = false, true // the best path has moved
	r.change()
	r.wants("backup 192.0.2.12 true, announce 192.0.2.11")
	r.handle(r.join(1, a4+":80", "198.51.100.1:1002"), Event{Type: SubClosed, Token: 1, Subflow: events[0].Subflow})
	r.wants("backup 192.0.2.12 false")
	r.exits[0].Same, r.exits[1].Same = true, false
	second := r.open(2, "192.0.2.1:80", "198.51.100.2:1000")
	r.handle(second...)
	r.handle(r.join(2, b4+":80", "198.51.100.2:1001"))
	r.took()
	r.m.Drop(map[Ends]bool{second[0].Ends(): true}, r.now)
	r.m.Tick(r.now)
	r.wants("destroy 192.0.2.1, announce 192.0.2.11")
}

// MP_PRIO goes out once for each change, for the connection's own address too, and again for subflows that come later.
func TestPriorities(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4+"*", b4, "192.0.2.1")
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	join := r.join(1, a4+":80", "198.51.100.1:1001")
	r.handle(join)
	r.wants("announce 192.0.2.11, announce 192.0.2.12, backup 192.0.2.11 true")
	r.reach(a4, b4, "192.0.2.1*")
	r.change()
	r.wants("backup 192.0.2.1 true, backup 192.0.2.11 false")
	r.change()
	r.wants("")
	// The kernel remembers priorities of addresses or does not, depending on its version: it is told again.
	r.handle(Event{Type: SubClosed, Token: 1, Subflow: join.Subflow}, r.join(1, a4+":80", "198.51.100.1:1002"))
	r.wants("backup 192.0.2.1 false, backup 192.0.2.1 true, backup 192.0.2.11 false")
}

// The best exits are announced as far as subflows are allowed, and what clients open beyond is closed.
func TestMaxSubflows(t *testing.T) {
	r := newRig(t, Config{MaxSubflows: 2})
	r.reach(b4, a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.wants("announce 192.0.2.12")
	r.handle(r.join(1, b4+":80", "198.51.100.1:1001"), r.join(1, b4+":80", "198.51.100.2:1001"))
	r.wants("destroy 192.0.2.12")
	if n := len(r.connections[1].Subflows); n != 2 {
		t.Errorf("%d subflows, want 2", n)
	}
}

// An announcement that brings no subflow is repeated some 0.3, 2.3, 6.3 and 14.3 s after the first, one that does is not.
func TestRepeats(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, b4+":80", "198.51.100.1:1001"))
	r.took()
	start := r.now
	var at []time.Duration
	for next := r.m.Tick(r.now); !next.IsZero(); next = r.m.Tick(r.now) {
		r.now = next
		r.m.Tick(r.now)
		if r.took() != "" {
			at = append(at, r.now.Sub(start))
		}
	}
	var want []time.Duration
	for _, after := range repeatAfter[:renewLast] {
		want = append(want, after+together)
		if n := len(want); n > 1 {
			want[n-1] += want[n-2]
		}
	}
	if !slices.Equal(at, want) {
		t.Errorf("repeated after %v, want %v", at, want)
	}
}

// Commands stay within the budget, and all is done in the end.
func TestBudget(t *testing.T) {
	r := newRig(t, Config{ChangesPerSecond: 100})
	r.reach(a4)
	for i := range uint32(50) {
		r.handle(r.open(i, "192.0.2.1:80", fmt.Sprintf("198.51.100.1:%d", 1000+i))...)
	}
	if n := len(r.log); n != 10 {
		t.Errorf("%d commands at once, want a tenth of 100", n)
	}
	if s := r.m.Status(); s.Waiting != 40 || s.Deferred != 40 {
		t.Errorf("status %+v", s)
	}
	start := r.now
	for next := r.now; len(r.log) < 50; {
		r.now = next
		next = r.m.Tick(r.now)
	}
	if took := r.now.Sub(start).Round(time.Millisecond); took != 400*time.Millisecond {
		t.Errorf("40 commands took %v, want 400 ms", took)
	}
}

// What cannot wait goes before what does, also if it was waiting for its turn already.
func TestFailuresFirst(t *testing.T) {
	r := newRig(t, Config{ChangesPerSecond: 100})
	for i := range uint32(50) {
		r.handle(r.open(i, "192.0.2.1:80", fmt.Sprintf("198.51.100.%d:1000", i))...)
	}
	r.reach(a4)
	r.m.Changed(nil, func() {})
	r.m.Tick(r.now) // the budget is for 10
	var waits netip.Addr
	for token, c := range r.m.byToken {
		if len(c.announced) == 0 {
			waits = r.m.byToken[token].Client
		}
	}
	r.m.Act(map[netip.Addr]bool{waits: true}, r.now)
	before := len(r.log)
	r.now = r.now.Add(10 * time.Millisecond)
	r.m.Tick(r.now)
	for _, c := range r.m.byToken {
		if c.Client == waits && len(c.announced) == 0 {
			t.Errorf("the client whose exit fails waits on; %d others were served", len(r.log)-before)
		}
	}
	for range 1000 {
		r.now = r.m.Tick(r.now)
	}
	for _, c := range r.m.byToken {
		if len(c.announced) == 0 || c.queued != unqueued {
			t.Errorf("%v is left out in the end", c.Client)
		}
	}
}

// However long nothing was done, no more than a tenth of a second's commands go out at once.
func TestBudgetDoesNotGather(t *testing.T) {
	b := newBudget(100)
	now := time.Unix(1e9, 0)
	for _, idle := range []time.Duration{0, time.Hour} {
		now = now.Add(idle)
		n := 0
		for ; b.left(now); n++ {
			b.take()
		}
		if n != 10 {
			t.Errorf("%d at once after %v, want 10", n, idle)
		}
	}
}

// The kernel's refusals: a connection under its own path manager is left alone, another id is not tried again and again.
func TestRefusals(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.refuse = fmt.Errorf("announce: %w", ErrNotOurs)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.wants("announce 192.0.2.11")
	r.change()
	r.wants("")
	r.refuse = ErrID
	r.handle(r.open(2, "192.0.2.1:80", "198.51.100.1:1001")...)
	r.wants("announce 192.0.2.11, announce 192.0.2.12")
	r.refuse = nil
	r.change()
	r.now = r.now.Add(time.Hour)
	r.m.Tick(r.now)
	r.wants("")
	if s := r.m.Status(); s.NotOurs != 1 || s.Refused != 2 {
		t.Errorf("status %+v", s)
	}
}

// Ids are unique and depend on the set of addresses, not on its order.
func TestIDs(t *testing.T) {
	var exits []netip.Addr
	for i := range byte(200) {
		exits = append(exits, netip.AddrFrom4([4]byte{192, 0, 2, i}))
	}
	first, err := assignIDs(exits)
	if err != nil {
		t.Fatal(err)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(exits), func(i, j int) { exits[i], exits[j] = exits[j], exits[i] })
	second, err := assignIDs(exits)
	if err != nil || !maps.Equal(first, second) {
		t.Errorf("another order, other ids: %v", err)
	}
	used := map[uint8]bool{}
	for _, id := range first {
		if id < idBase || used[id] {
			t.Errorf("id %d is low or used twice", id)
		}
		used[id] = true
	}
	if _, err := assignIDs(append(exits, slices.Repeat(exits[:1], 100)...)); err == nil {
		t.Error("300 addresses got ids")
	}
}

// A connection that the application closed is watched for a while, not announced to, and forgotten.
func TestLingers(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"), Event{Type: Closed, Token: 1})
	r.took()
	r.now = r.now.Add(10 * time.Second)
	r.m.Tick(r.now)
	r.wants("")
	r.reach(b4)
	r.change()
	r.wants("remove 192.0.2.11, destroy 192.0.2.11")
	r.reach(a4, b4)
	r.change()
	r.wants("") // closed: nothing is announced to it any more
	if s := r.m.Status(); s.Connections != 0 || s.Closing != 1 {
		t.Errorf("status %+v", s)
	}
	r.now = r.now.Add(20 * time.Second)
	r.m.Tick(r.now)
	if s := r.m.Status(); s.Closing != 0 || len(r.m.byToken) != 0 {
		t.Errorf("status %+v", s)
	}
	// The kernel gives the token of a closed connection to another.
	r.handle(r.open(2, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(Event{Type: Closed, Token: 2})
	r.handle(r.open(2, "[2001:db8::1]:80", "[2001:db8:c::1]:1000")...)
	if c := r.m.byToken[2]; len(c.subflows) != 1 || c.Client != netip.MustParseAddr("2001:db8:c::1") || c.closing {
		t.Errorf("the new connection is taken for %+v", c)
	}
}

// Whatever happens, and whatever events are lost, after a Resync the manager's picture is the kernel's, and the kernel is as wanted.
func TestRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	r := newRig(t, Config{})
	sets := [][]string{{}, {a4}, {b4}, {a4, b4}, {a6}, {a4, a6, b6}, {b4, b6}}
	for step := range 20_000 {
		token := 1 + random.Uint32N(20)
		c := r.connections[token]
		lost := random.IntN(10) == 0
		var events []Event
		switch k := random.IntN(10); {
		case c == nil && k < 5:
			client := []string{"198.51.100.1", "[2001:db8:c::1]"}[token%2]
			server := []string{"192.0.2.1:80", "[2001:db8::1]:80"}[token%2]
			events = r.open(token, server, fmt.Sprintf("%s:%d", client, 1000+step%50_000))
		case c != nil && k < 4:
			for _, a := range r.announced[token] { // in any order: whichever it is
				server := netip.AddrPortFrom(a, 80)
				client := netip.AddrPortFrom(c.Remote.Addr(), uint16(1000+step%50_000))
				events = append(events, r.join(token, server.String(), client.String()))
				break
			}
		case c != nil && k == 4 && len(c.Subflows) > 1:
			s := c.Subflows[1]
			c.Subflows = slices.Delete(slices.Clone(c.Subflows), 1, 2)
			events = []Event{{Type: SubClosed, Token: token, Subflow: s}}
		case c != nil && k == 5:
			delete(r.connections, token)
			delete(r.announced, token)
			events = []Event{{Type: Closed, Token: token}}
		case k == 6:
			r.reach(sets[random.IntN(len(sets))]...)
			r.change()
		}
		if !lost {
			r.handle(events...)
		}
		r.now = r.now.Add(time.Millisecond)
		r.m.Tick(r.now)
		if step%100 == 99 {
			var all []Connection
			for _, c := range r.connections {
				all = append(all, *c)
				all[len(all)-1].Subflows = slices.Clone(c.Subflows)
			}
			r.m.Resync(all, r.now)
			r.compare()
		}
		r.log = nil
		if t.Failed() {
			t.Fatalf("in step %d", step)
		}
	}
}

// compare holds the manager's picture against the kernel, and the kernel against what is wanted.
func (r *rig) compare() {
	r.Helper()
	if len(r.m.byToken) != len(r.connections) {
		r.Fatalf("%d connections known, the kernel has %d", len(r.m.byToken), len(r.connections))
	}
	for token, c := range r.connections {
		k := r.m.byToken[token]
		if !slices.Equal(k.subflows, c.Subflows) {
			r.Errorf("connection %d: subflows %v known, the kernel has %v", token, k.subflows, c.Subflows)
		}
		for _, s := range k.subflows {
			if !r.m.having(map[Ends]bool{s.Ends(): true})[k] {
				r.Errorf("connection %d is not found by its subflow %v", token, s.Ends())
			}
		}
		var want, got []netip.Addr
		for _, x := range r.m.wanted(k) {
			want = append(want, x.Addr)
			if slices.Contains(k.resting, x.Addr) { // it is announced again soon
				got = append(got, x.Addr)
			}
		}
		for _, a := range k.announced {
			got = append(got, a.addr)
		}
		slices.SortFunc(want, netip.Addr.Compare)
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(want, got) {
			r.Errorf("connection %d: announced %v, want %v", token, got, want)
		}
		for _, s := range c.Subflows[1:] {
			if !slices.Contains(want, s.addr()) {
				r.Errorf("connection %d: subflow on %v, want %v", token, s.addr(), want)
			}
		}
	}
	for a, some := range r.m.from {
		for c := range some {
			if r.m.byToken[c.Token] != c {
				r.Errorf("connection %d is gone, and found by %v", c.Token, a)
			}
		}
		if len(some) == 0 {
			r.Errorf("nothing is left of %v, and it is remembered", a)
		}
	}
}

// The set of prefixes against comparing with each.
func TestPrefixSet(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	addr := func() netip.Addr {
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(random.IntN(4)), byte(random.IntN(4)), byte(random.IntN(4))})
		}
		return netip.AddrFrom16([16]byte{0: 0x20, 1: byte(random.IntN(4)), 15: byte(random.IntN(4))})
	}
	inside := 0
	for range 2000 {
		var prefixes []netip.Prefix
		for range random.IntN(4) {
			a := addr()
			prefixes = append(prefixes, netip.PrefixFrom(a, random.IntN(a.BitLen()+1)))
		}
		a := addr()
		want := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		if got := newPrefixSet(prefixes).contains(a); got != want {
			t.Fatalf("%v in %v: %v, want %v", a, prefixes, got, want)
		}
		if want {
			inside++
		}
	}
	if inside < 200 || inside > 1800 {
		t.Errorf("%d of 2000 were inside: the test tests one side only", inside)
	}
}
