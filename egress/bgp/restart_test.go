package bgp

import (
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/internal/rung"
)

// lose brings a session up with two VPN routes and a unicast one, of which only VPN routes are kept, and ends it.
func lose(t *testing.T, r *reflector, end func()) *watcher {
	t.Helper()
	r.restart = []wire.Family{wire.RF_IPv6_VPN}
	w := watch(t, config(r))
	r.greet()
	r.say(vpn("2001:db8:c::/48", "2001:db8:d::/48").message(t), unicastRoute("2001:db8:e::/48").message(t), wire.NewEndOfRib(wire.RF_IPv6_VPN))
	w.event("end of VPNv6", 1)
	w.has("2001:db8:c::/48", "2001:db8:d::/48", "2001:db8:e::/48")
	end()
	w.event("down", 1)
	return w
}

// noLater ends the time for which stale routes are kept now: those of a family after the end of its table, or all.
func noLater(t *testing.T, w *watcher, of ...Family) {
	t.Helper()
	s := w.speaker.sessions[0]
	s.work.Lock()
	defer s.work.Unlock()
	timer := s.timer
	for _, f := range of {
		timer = s.tables[f].late
	}
	if timer == nil || !timer.Reset(time.Millisecond) { // minutes otherwise
		t.Error("nobody waited for the end")
	}
}

// The reflector dies and returns: its routes stay, until it has told which of them there still are. Those it has not told of by the end of its table stay a little longer: it may not have heard of them yet itself.
func TestGracefulRestart(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := lose(t, r, func() { must(t, r.conn.Close()) })
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	if w.down.Kept != 2 {
		t.Errorf("kept %d routes, want 2", w.down.Kept)
	}
	r.greet()
	w.event("up", 2)
	if s := w.speaker.Sessions()[0]; s.Stale[VPNv6] != 2 || s.Prefixes[VPNv6] != 2 {
		t.Errorf("session after the return: %+v", s)
	}
	r.say(vpn("2001:db8:d::/48", "2001:db8:f::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:d::/48", "2001:db8:f::/48")
	r.say(wire.NewEndOfRib(wire.RF_IPv6_VPN))
	w.event("end of VPNv6", 2)
	w.has("2001:db8:c::/48", "2001:db8:d::/48", "2001:db8:f::/48")
	noLater(t, w, VPNv6)
	w.has("2001:db8:d::/48", "2001:db8:f::/48")
	if s := w.speaker.Sessions()[0]; s.Stale[VPNv6] != 0 || s.Prefixes[VPNv6] != 2 {
		t.Errorf("session after the end of RIB: %+v", s)
	}
}

// It says again and again that it has told all. The first time counts: one timer runs, and who listens hears it once. After the next restart it counts anew.
func TestManyEndsOfRIB(t *testing.T) {
	t.Parallel()
	r, w := halfTold(t)
	late := func() *time.Timer {
		s := w.speaker.sessions[0]
		s.work.Lock()
		defer s.work.Unlock()
		return s.tables[VPNv6].late
	}
	end := wire.NewEndOfRib(wire.RF_IPv6_VPN)
	r.say(end)
	w.event("end of VPNv6", 2)
	first := late()
	r.say(end, end, vpn("2001:db8:f::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:d::/48", "2001:db8:f::/48")
	w.event("end of VPNv6", 2)
	if first == nil || late() != first {
		t.Errorf("after two more ends of RIB the timer is %p, it was %p", late(), first)
	}
	must(t, r.conn.Close())
	w.event("down", 2)
	r.greet()
	r.say(end)
	w.event("end of VPNv6", 3)
	if again := late(); again == first {
		t.Error("after the next restart there is no other timer")
	}
	noLater(t, w, VPNv6)
	w.has()
}

// One family's table has ended; another's is still being told.
func TestGracefulRestartOfTwoFamilies(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.restart = []wire.Family{wire.RF_IPv6_VPN, wire.RF_IPv6_UC}
	w := watch(t, config(r))
	r.greet()
	r.say(vpn("2001:db8:c::/48").message(t), unicastRoute("2001:db8:e::/48").message(t), wire.NewEndOfRib(wire.RF_IPv6_VPN), wire.NewEndOfRib(wire.RF_IPv6_UC))
	w.event("end of IPv6 unicast", 1)
	must(t, r.conn.Close())
	w.event("down", 1)
	r.greet()
	r.say(wire.NewEndOfRib(wire.RF_IPv6_UC))
	w.event("end of IPv6 unicast", 2)
	noLater(t, w, IPv6)
	w.has("2001:db8:c::/48")
	noLater(t, w)
	w.has()
}

// It returns and never says that it has told all: what it has not told again goes after staleTime.
func TestRestartWithoutEnd(t *testing.T) {
	t.Parallel()
	_, w := halfTold(t)
	noLater(t, w)
	w.has("2001:db8:d::/48")
	w.until("none to be told again, in the same session", func() bool { s := w.speaker.Sessions()[0]; return s.Stale[VPNv6] == 0 && s.State == Established })
}

// halfTold has lost a session and is back, but the reflector has told one route of two again.
func halfTold(t *testing.T) (*reflector, *watcher) {
	t.Helper()
	r := newReflector(t, "127.0.0.1:0")
	w := lose(t, r, func() { must(t, r.conn.Close()) })
	r.greet()
	r.say(vpn("2001:db8:d::/48").message(t))
	w.until("one stale route", func() bool { return w.speaker.Sessions()[0].Stale[VPNv6] == 1 })
	return r, w
}

// It dies once more before it has told all: what was stale then goes (RFC 4724 section 4.2).
func TestRestartTwice(t *testing.T) {
	t.Parallel()
	r, w := halfTold(t)
	must(t, r.conn.Close())
	w.event("down", 2)
	w.has("2001:db8:d::/48")
}

// It returns, but says that it did not keep its forwarding state.
func TestRestartWithoutForwardingState(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := lose(t, r, func() { must(t, r.conn.Close()) })
	r.flags = 0
	r.greet()
	w.event("up", 2)
	w.has()
}

// It does not return in its restart time.
func TestRestartTime(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.seconds = 1
	began := time.Now()
	w := lose(t, r, func() {
		began = time.Now()
		must(t, r.listener.Close())
		must(t, r.conn.Close())
	})
	w.has()
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("routes were withdrawn after %s, the restart time is 1 s", waited)
	}
}

// The speaker stops while routes are kept: they are not withdrawn when the restart time is over.
func TestStopWhileKept(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	kept := rung.Times(1, 5) // on a busy machine it must not be over before the speaker stops
	r.seconds = uint16(kept)
	w := lose(t, r, func() { must(t, r.conn.Close()) })
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	w.stop()
	w.speaker.Wait()
	time.Sleep(time.Duration(kept)*time.Second + 500*time.Millisecond)
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
}

// After its restart the reflector tells the same routes with other path IDs. What was kept does not count for the limit.
func TestRestartAtTheLimit(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.restart = []wire.Family{wire.RF_IPv6_VPN}
	c := config(r)
	c.Reflectors[0].MaxPrefixes = 2
	w := watch(t, c)
	for id := range uint32(3) {
		r.greet()
		a := vpn("2001:db8:c::/48", "2001:db8:d::/48")
		a.pathIDs = []uint32{10 * id, 10*id + 1}
		r.say(a.message(t), wire.NewEndOfRib(wire.RF_IPv6_VPN))
		w.event("end of VPNv6", int(id)+1)
		w.has(a.prefixes...)
		must(t, r.conn.Close())
	}
}

// It falls silent: that is a failure like a lost connection.
func TestRestartAfterHoldTime(t *testing.T) {
	rung.Long(t)
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.hold = 3
	w := lose(t, r, func() {})
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	w.until("a NOTIFICATION", func() bool { return r.notification() == "4/0" })
}

// How a session ends decides whether routes stay.
func TestRestartAfterNotification(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say  *wire.BGPMessage
		kept bool
	}{
		"administrative reset": {wire.NewBGPNotificationMessage(wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_ADMINISTRATIVE_RESET, nil), true},
		"hard reset":           {wire.NewBGPNotificationMessage(wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_HARD_RESET, nil), false},
		"nonsense":             {wire.NewBGPNotificationMessage(wire.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil), true},
		"what nobody can read": {&wire.BGPMessage{Header: wire.BGPHeader{Type: 9}, Body: &wire.BGPKeepAlive{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReflector(t, "127.0.0.1:0")
			w := lose(t, r, func() { r.say(c.say) })
			if c.kept {
				w.has("2001:db8:c::/48", "2001:db8:d::/48")
			} else {
				w.has()
			}
		})
	}
}
