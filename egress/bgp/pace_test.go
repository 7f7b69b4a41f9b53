package bgp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/internal/rung"
)

// After a quiet time everything is handed over at once; who goes on and on gets a turn every 50 ms.
func TestPace(t *testing.T) {
	p := newPace()
	now := time.Unix(1000, 0)
	for i := range turnsAtOnce {
		if wait := p.take(now); wait != 0 {
			t.Fatalf("turn %d waits for %v", i, wait)
		}
	}
	for i := range 5 {
		wait := p.take(now)
		if wait != turnEvery {
			t.Errorf("turn %d of a busy reflector waits for %v, want %v", i, wait, turnEvery)
		}
		now = now.Add(wait)
	}
	now = now.Add(3 * turnEvery)
	for i, want := range []time.Duration{0, 0, 0, turnEvery} {
		if wait := p.take(now); wait != want {
			t.Errorf("turn %d after a short rest waits for %v, want %v", i, wait, want)
		}
	}
	if wait := p.take(now.Add(time.Hour)); wait != 0 {
		t.Errorf("after an hour it waits for %v", wait)
	}
}

// A route that comes and goes without a pause is handed over as often as there are turns, and what it was last counts. That the reflector has told all it says
// once: saying it each time wins no turn.
func TestFlaps(t *testing.T) {
	t.Parallel()
	for name, between := range map[string][]*wire.BGPMessage{"alone": nil, "with the end of RIB": {wire.NewEndOfRib(wire.RF_IPv6_VPN)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReflector(t, "127.0.0.1:0")
			w := watch(t, config(r))
			r.greet()
			flaps := rung.Times(300, 1000)
			flapping := vpn("2001:db8:f:1::/64")
			began := time.Now()
			for range flaps {
				r.say(flapping.message(t))
				r.say(between...)
				r.say(flapping.withdrawal(t))
				time.Sleep(time.Millisecond)
			}
			r.say(vpn("2001:db8:c::/48").message(t))
			w.has("2001:db8:c::/48")
			w.mu.Lock()
			defer w.mu.Unlock()
			if most := turnsAtOnce + int(time.Since(began)/turnEvery) + 2 + len(between); w.calls > most {
				t.Errorf("%d flaps came in %d turns, at most %d are due", flaps, w.calls, most)
			}
		})
	}
}

// A batch that is full waits for no turn: a table is told as fast as it can be taken.
func TestFullBatchesDoNotWait(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := watch(t, config(r))
	r.greet()
	w.event("up", 1)
	session := w.speaker.sessions[0]
	session.work.Lock()
	for range 3600 * int(time.Second/turnEvery) { // an hour of them
		session.pace.take(time.Now())
	}
	session.work.Unlock()
	var prefixes []string
	for i := range batchSize {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb9, byte(i >> 8), byte(i)}), 48).String())
		if len(prefixes) == 64 {
			r.say(vpn(prefixes...).message(t))
			prefixes = nil
		}
	}
	w.until(fmt.Sprint(batchSize, " routes"), func() bool { return len(w.routes) == batchSize })
}
