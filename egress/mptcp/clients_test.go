package mptcp

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Lost subflows are closed, and their addresses announced again later; the last one of a connection is left.
func TestDrop(t *testing.T) {
	var joined []string
	r := newRig(t, Config{Joined: func(client, addr netip.Addr) { joined = append(joined, client.String()+" "+addr.String()) }})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	a := r.join(1, a4+":80", "198.51.100.1:1001")
	r.handle(a)
	if want := []string{"198.51.100.1 " + a4}; !slices.Equal(joined, want) {
		t.Errorf("heard of %v, want %v", joined, want)
	}
	r.took()
	some := map[Ends]bool{a.Ends(): true}
	if around := r.m.Around(some); len(around) != 1 || len(around[0].Subflows) != 2 {
		t.Errorf("around %v: %v, want the two subflows of connection 1", some, around)
	}
	r.m.Drop(some, r.now)
	r.wants("remove 192.0.2.11, destroy 192.0.2.11")
	r.m.Tick(r.now)
	r.wants("")
	r.now = r.now.Add(repeatAfter[renewSoon])
	r.m.Tick(r.now)
	r.wants("announce 192.0.2.11")
	r.reach()
	r.handle(r.open(2, "192.0.2.1:80", "198.51.100.2:1000")...)
	for _, s := range r.m.Around(map[Ends]bool{{netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("198.51.100.2:1000")}: true})[0].Subflows {
		r.m.Drop(map[Ends]bool{s.Ends(): true}, r.now)
	}
	r.wants("")
}

// A client's subflow may come from another address of its own: its connection is found by that one, too, until it is forgotten.
func TestSecondAddress(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	second := r.join(1, a4+":80", "203.0.113.9:1001")
	r.handle(second)
	if around := r.m.Around(map[Ends]bool{second.Ends(): true}); len(around) != 1 || around[0].Client != netip.MustParseAddr("198.51.100.1") {
		t.Errorf("around the second address: %v, want the connection of the first", around)
	}
	if r.m.Present(second.Remote.Addr()) {
		t.Error("the second address is taken for a client of its own")
	}
	r.handle(Event{Type: Closed, Token: 1})
	r.m.Tick(r.now.Add(lingerFor))
	if len(r.m.from) != 0 {
		t.Errorf("of a connection that is forgotten %v is left", r.m.from)
	}
}

// A subflow from another address of the client proves the exit for that address: what is dead may be the way to the first one's network.
func TestJoinedFromSecondAddress(t *testing.T) {
	var joined []string
	r := newRig(t, Config{Joined: func(client, addr netip.Addr) { joined = append(joined, client.String()+" "+addr.String()) }})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "203.0.113.9:1001"))
	if want := []string{"203.0.113.9 " + a4}; !slices.Equal(joined, want) {
		t.Errorf("heard of %v, want %v", joined, want)
	}
}

// Nothing is withdrawn when one of two subflows on an address dies: RM_ADDR would have the client close the other, too. That one's end withdraws it.
func TestRenewBesideAnother(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	wifi, mobile := r.join(1, a4+":80", "198.51.100.1:1001"), r.join(1, a4+":80", "203.0.113.9:1001")
	r.handle(wifi, mobile)
	r.took()
	r.handle(Event{Type: SubClosed, Token: 1, Subflow: mobile.Subflow, Err: syscall.ETIMEDOUT})
	r.wants("")
	r.handle(Event{Type: SubClosed, Token: 1, Subflow: wifi.Subflow, Err: syscall.ETIMEDOUT})
	r.wants("remove 192.0.2.11")
}

// Subflows whose events were lost are heard of when the connections are read again; those known before are not.
func TestJoinedWhileEventsWereLost(t *testing.T) {
	var joined []string
	r := newRig(t, Config{Joined: func(client, addr netip.Addr) { joined = append(joined, client.String()+" "+addr.String()) }})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"))
	r.join(1, b4+":80", "198.51.100.1:1002") // of which nobody is told
	r.m.Resync([]Connection{*r.connections[1]}, r.now)
	if want := []string{"198.51.100.1 " + a4, "198.51.100.1 " + b4}; !slices.Equal(joined, want) {
		t.Errorf("heard of %v, want %v", joined, want)
	}
}

// A subflow whose end nobody was told of comes back as one that died of an error does, once it is missing when the connections are read again.
func TestLostWhileEventsWereLost(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"), r.join(1, b4+":80", "198.51.100.1:1002"))
	r.took()
	c := r.connections[1]
	c.Subflows = slices.Delete(c.Subflows, 1, 2)
	for range 2 {
		r.m.Resync([]Connection{*c}, r.now)
	}
	r.wants("remove 192.0.2.11")
	r.now = r.now.Add(repeatAfter[renewLate])
	r.m.Tick(r.now)
	r.wants("announce 192.0.2.11")
}

// While thousands of connections are looked at for a change, others get their turn, also one that makes the picture anew: no connection of the old one is acted on.
func TestChangedRests(t *testing.T) {
	const rests = 4
	for _, resync := range []bool{false, true} {
		r := newRig(t, Config{ChangesPerSecond: 1e6})
		for i := range uint32(rests*restAfter + 1) {
			r.handle(r.open(i+1, "192.0.2.1:80", fmt.Sprintf("10.0.%d.%d:1000", i>>8, i&0xff))...)
		}
		rested := 0
		r.m.Changed(netip.MustParsePrefix("10.0.0.0/8").Contains, func() {
			if rested++; resync && rested == 2 {
				r.m.Resync(nil, r.now)
			}
		})
		if want := map[bool]int{false: rests*restAfter + 1}[resync]; rested != rests || r.m.waiting() != want {
			t.Errorf("read anew %v: rested %d times, %d connections wait; want %d and %d", resync, rested, r.m.waiting(), rests, want)
		}
	}
}

// An exit through which nothing arrives any more loses its subflows within the budget, and all of them in the end.
func TestDropWithinBudget(t *testing.T) {
	const connections = 100
	r := newRig(t, Config{ChangesPerSecond: 100})
	r.reach(a4)
	some := map[Ends]bool{}
	for i := range connections {
		client := fmt.Sprintf("198.51.100.%d", i)
		r.handle(r.open(uint32(i), "192.0.2.1:80", client+":1000")...)
		s := r.join(uint32(i), a4+":80", client+":1001")
		r.handle(s)
		some[s.Ends()] = true
		r.now = r.now.Add(time.Second)
		r.m.Tick(r.now)
	}
	before := r.m.counts
	r.m.Drop(some, r.now)
	var all []Connection
	for _, c := range r.connections {
		all = append(all, *c)
	}
	r.m.Resync(all, r.now) // events were lost meanwhile: what waits is not forgotten
	most := uint64(10 + 1) // a tenth of a second's at once, and a connection that is begun is brought to its end
	for range 10 * connections {
		if did := r.m.counts.Removes + r.m.counts.Destroys - before.Removes - before.Destroys; did > most {
			t.Fatalf("%d commands to drop subflows, want at most %d by then", did, most)
		}
		r.now = r.now.Add(10 * time.Millisecond)
		most++
		r.m.Tick(r.now)
	}
	if did := r.m.counts.Destroys - before.Destroys; did != connections {
		t.Errorf("%d subflows were dropped in the end, want %d", did, connections)
	}
}

// A client that comes from ever new addresses costs no more memory than it has subflows: one has a network of them.
func TestClientOfManyAddresses(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a6)
	r.handle(r.open(1, "[2001:db8::1]:80", "[2001:db8:c::1]:1000")...)
	for i := range 1000 {
		join := r.join(1, "["+a6+"]:80", fmt.Sprintf("[2001:db8:c::%x]:1001", i+2))
		r.handle(join)
		if c := r.m.byToken[1]; len(c.subflows) != 2 || len(r.m.having(map[Ends]bool{join.Ends(): true})) != 1 {
			t.Fatalf("subflows %v, of which the last is not found by its address", c.subflows)
		}
		if i%2 == 0 {
			r.handle(Event{Type: SubClosed, Token: 1, Subflow: join.Subflow})
			continue
		}
		r.m.Drop(map[Ends]bool{join.Ends(): true}, r.now)
		r.now = r.now.Add(time.Second)
		r.m.Tick(r.now)
	}
	if c := r.m.byToken[1]; len(r.m.from) != 1 || len(c.from) != 1 {
		t.Errorf("%d addresses are kept, %d of the connection", len(r.m.from), len(c.from))
	}
}

// When the only subflow that is to carry goes, the first one carries, and not all backups alike.
func TestCarrierGoes(t *testing.T) {
	for _, err := range []syscall.Errno{0, syscall.ECONNRESET} {
		r := newRig(t, Config{})
		r.reach(a4, b4+"*", "192.0.2.1*")
		r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
		carrier := r.join(1, a4+":80", "198.51.100.1:1001")
		r.handle(carrier, r.join(1, b4+":80", "198.51.100.1:1002"))
		r.wants("announce 192.0.2.11, announce 192.0.2.12, backup 192.0.2.1 true, backup 192.0.2.12 true")
		r.handle(Event{Type: SubClosed, Token: 1, Subflow: carrier.Subflow, Err: err})
		r.wants(map[bool]string{true: "remove 192.0.2.11, "}[err != 0] + "backup 192.0.2.1 false")
	}
}

// What a client has joined is not announced again because the event of that was lost.
func TestJoinedUnheard(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.join(1, a4+":80", "198.51.100.1:1001")
	r.m.Resync([]Connection{*r.connections[1]}, r.now)
	r.wants("announce 192.0.2.11")
	for range 20 {
		r.now = r.now.Add(time.Second)
		r.m.Tick(r.now)
	}
	r.wants("")
}

// A Manager started anew takes subflows as proof of what was announced, with their ids; reading everything again announces nothing again.
func TestResync(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.open(1, "192.0.2.1:80", "198.51.100.1:1000")
	r.announced[1] = map[uint8]netip.Addr{77: netip.MustParseAddr(a4)}
	r.join(1, a4+":80", "198.51.100.1:1001")
	found := []Connection{*r.connections[1], {Token: 2, Local: netip.MustParseAddrPort("192.0.2.1:9"), Remote: netip.MustParseAddrPort("198.51.100.1:80")}}
	r.m.Resync(found, r.now)
	r.wants("announce 192.0.2.12")
	r.m.Resync(append(found, Connection{Token: 3, Server: true, Local: found[0].Local, Remote: netip.MustParseAddrPort("198.51.100.2:1000")}), r.now)
	r.wants("announce 192.0.2.11, announce 192.0.2.12")
	for token, earlier := range map[uint32]bool{1: true, 3: false} {
		if got := r.m.byToken[token].Earlier; got != earlier {
			t.Errorf("connection %d is older than the Manager: %v", token, got)
		}
	}
	r.m.Resync(found, r.now)
	r.wants("")
	r.reach()
	r.change()
	r.wants("remove 192.0.2.11, remove 192.0.2.12, destroy 192.0.2.11")
	if s := r.m.Status(); s.Connections != 1 || s.Refused != 0 || s.Resyncs != 3 {
		t.Errorf("status %+v", s)
	}
}
