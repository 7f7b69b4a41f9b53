package bgp

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
	"plait.dev/plait/internal/rung"
)

func TestSession(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := watch(t, config(r))
	r.greet()
	two := vpn("2001:db8:c::/48", "2001:db8:c::/48")
	two.pathIDs, two.labels = []uint32{1, 2}, []uint32{16, 32}
	r.say(two.message(t), unicastRoute("192.0.2.0/24").message(t), unicastRoute("2001:db8:d::/48").message(t), wire.NewEndOfRib(wire.RF_IPv6_VPN))
	w.event("end of VPNv6", 1)
	w.has("192.0.2.0/24", "2001:db8:c::/48", "2001:db8:c::/48", "2001:db8:d::/48")
	at := netip.MustParseAddr("127.0.0.1")
	key := egress.Key{Reflector: at, Distinguisher: "65000:11", PathID: 2, Prefix: netip.MustParsePrefix("2001:db8:c::/48")}
	want := &egress.Route{SID: netip.MustParseAddr("2001:db8:f1:2::"), RouteTargets: []string{"65000:11"}, NextHop: borderHop, LocalPref: 200,
		ASPath: []uint32{64496, 64500}, RouterID: reflectorID}
	w.mu.Lock()
	if got := w.routes[key]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.mu.Unlock()
	s := w.speaker.Sessions()[0]
	if s.State != Established || s.RouterID != reflectorID || s.Prefixes != [families]int{1, 1, 0, 2} || s.Uptime <= 0 || s.LastError != "" {
		t.Errorf("session: %+v", s)
	}
	if got := strings.Join(s.Agreed, "; "); !strings.Contains(got, "families: IPv4 unicast, IPv6 unicast, VPNv4, VPNv6; ADD-PATH receive: ") {
		t.Errorf("agreed on: %s", got)
	}
	two.pathIDs, two.prefixes, two.labels = []uint32{2}, two.prefixes[:1], []uint32{wire.WITHDRAW_LABEL}
	r.say(two.withdrawal(t), two.withdrawal(t)) // the second is of what is not there any more
	w.has("192.0.2.0/24", "2001:db8:c::/48", "2001:db8:d::/48")
}

// The speaker is told routes, asked for its own, and told that its routes are awaited. All it sends are OPEN, keepalives, and
// that it has no routes.
func TestAnnouncesNothing(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.restart, r.hold = wireFamilies[:], 3
	w := watch(t, config(r))
	r.greet()
	r.say(vpn("2001:db8:c::/48").message(t), unicastRoute("192.0.2.0/24").message(t))
	for _, f := range wireFamilies {
		r.say(wire.NewBGPRouteRefreshMessage(f.Afi(), 0, f.Safi()))
	}
	w.has("192.0.2.0/24", "2001:db8:c::/48")
	w.until("a keepalive after the first", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, m := range r.heard {
			if m.Header.Type == wire.BGP_MSG_KEEPALIVE {
				n++
			}
		}
		return n >= 2
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := 0
	for _, m := range r.heard {
		switch m.Header.Type {
		case wire.BGP_MSG_OPEN, wire.BGP_MSG_KEEPALIVE:
		case wire.BGP_MSG_UPDATE:
			if end, _ := m.Body.(*wire.BGPUpdate).IsEndOfRib(); !end {
				t.Errorf("the speaker announced: %+v", m.Body)
			}
			ends++
		default:
			t.Errorf("the speaker sent a message of type %d", m.Header.Type)
		}
	}
	if ends != families {
		t.Errorf("the speaker sent %d ends of RIB, want %d", ends, families)
	}
}

// What arrives together is handed over together.
func TestBatches(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := watch(t, config(r))
	r.greet()
	updates := rung.Times(4000, 20000)
	var all []byte
	for i := range updates {
		a := vpn(netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}), 48).String())
		all = append(all, encode(t, a.message(t), true)...)
	}
	_, err := r.conn.Write(all)
	must(t, err)
	w.until("all routes", func() bool { return len(w.routes) == updates })
	if w.calls > updates/10 { // 128 KB hold some 700 of these messages
		t.Errorf("%d updates came in %d calls", updates, w.calls)
	}
}

func TestTwoReflectors(t *testing.T) {
	t.Parallel()
	one, two := newReflector(t, "127.0.0.1:0"), newReflector(t, "127.0.0.2:0")
	w := watch(t, config(one, two))
	one.greet()
	two.greet()
	one.say(vpn("2001:db8:c::/48").message(t))
	two.say(vpn("2001:db8:c::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:c::/48")
	must(t, one.listener.Close())
	must(t, one.conn.Close())
	w.event("down", 1)
	w.has("2001:db8:c::/48")
	if got := w.speaker.Sessions(); got[0].State == Established || got[1].State != Established || got[1].Prefixes[VPNv6] != 1 {
		t.Errorf("sessions %+v", got)
	}
	w.until("words about the reflector that is gone", func() bool { return strings.Contains(w.lastError(), "refused: does BGP run there") })
}

// That a session cannot come from the configured address is told as what it is.
func TestNotOurAddress(t *testing.T) {
	t.Parallel()
	c := config(newReflector(t, "127.0.0.1:0"))
	c.Reflectors[0].LocalAddress = netip.MustParseAddr("192.0.2.1")
	w := watch(t, c)
	w.until("words about the address", func() bool { return strings.Contains(w.lastError(), "this host has no address 192.0.2.1") })
}

// A route that was good and is told again broken is withdrawn and counted. The session and the other routes stay.
func TestMalformedCostsOneRoute(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	w := watch(t, config(r))
	r.greet()
	bad := vpn("2001:db8:c::/48")
	r.say(bad.message(t), vpn("2001:db8:d::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	bad.without = wire.BGP_ATTR_TYPE_ORIGIN
	r.say(bad.message(t))
	w.has("2001:db8:d::/48")
	bad.without, bad.sid = 0, nil
	r.say(bad.message(t), bad.message(t), unicastRoute("2001:db8:e::/48").message(t))
	w.has("2001:db8:d::/48", "2001:db8:e::/48")
	s := w.speaker.Sessions()[0]
	if s.State != Established || len(s.Refused) != 2 || s.Refused[0].Count != 1 || s.Refused[1].Count != 2 ||
		s.Refused[1].Last != "2001:db8:c::/48 of 65000:11" || !strings.Contains(s.Refused[1].Reason, "without an SRv6") {
		t.Errorf("session %+v", s)
	}
	told := func(what string, routes uint64) {
		t.Helper()
		if s := w.speaker.Sessions()[0]; s.Refused[0].Routes != 0 || s.Refused[1].Routes != routes {
			t.Errorf("%s: refused routes are %+v, want %d for want of a SID alone", what, s.Refused, routes)
		}
	}
	told("told twice", 1)
	r.say(vpn("2001:db8:c::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:d::/48", "2001:db8:e::/48")
	told("told with a SID", 0)
	r.say(bad.message(t))
	w.has("2001:db8:d::/48", "2001:db8:e::/48")
	told("told without again", 1)
	must(t, r.conn.Close())
	w.event("down", 1)
	told("after the session", 0)
}

// limited is a session that takes two routes.
func limited(t *testing.T) (*reflector, *watcher) {
	t.Helper()
	r := newReflector(t, "127.0.0.1:0")
	c := config(r)
	c.Reflectors[0].MaxPrefixes = 2
	w := watch(t, c)
	r.greet()
	return r, w
}

func TestPrefixLimit(t *testing.T) {
	t.Parallel()
	r, w := limited(t)
	r.say(vpn("2001:db8:c::/48", "2001:db8:d::/48").message(t))
	w.has("2001:db8:c::/48", "2001:db8:d::/48")
	r.say(vpn("2001:db8:c::/48").message(t), unicastRoute("2001:db8:e::/48").message(t)) // the first one replaces
	w.event("down", 1)
	w.has()
	w.until("the session to be shut", func() bool { return w.speaker.Sessions()[0].State == Shut })
	w.until("a NOTIFICATION", func() bool { return r.notification() == "6/1" })
	if got := w.lastError(); !strings.Contains(got, "told 3 routes, 0 of them refused, its limit is 2") {
		t.Errorf("last error: %s", got)
	}
}

// Refused routes count too, each once: the speaker holds what it refuses.
func TestPrefixLimitOfRefused(t *testing.T) {
	t.Parallel()
	r, w := limited(t)
	refused := func(prefixes ...string) announcement {
		a := vpn(prefixes...)
		a.sid = nil
		return a
	}
	r.say(vpn("2001:db8:c::/48").message(t), refused("2001:db8:c::/48", "2001:db8:d::/48").message(t), refused("2001:db8:d::/48").message(t), // two
		refused("2001:db8:d::/48").withdrawal(t), refused("2001:db8:e::/48").message(t), vpn("2001:db8:c::/48").message(t)) // and two
	w.until("one route and one that is refused", func() bool {
		s := w.speaker.Sessions()[0]
		return s.State == Established && s.Prefixes[VPNv6] == 1 && len(s.Refused) == 1 && s.Refused[0].Count == 4 && s.Refused[0].Routes == 1
	})
	r.say(refused("2001:db8:f::/48").message(t))
	w.until("the session to be shut", func() bool { return w.speaker.Sessions()[0].State == Shut })
	if got := w.lastError(); !strings.Contains(got, "told 3 routes, 2 of them refused, its limit is 2") {
		t.Errorf("last error: %s", got)
	}
}

// What an operator reads when a session does not come up or ends, and what the reflector is told.
func TestErrorsInWords(t *testing.T) {
	t.Parallel()
	without := func(code wire.BGPCapabilityCode) func(*wire.BGPOpen) {
		return func(o *wire.BGPOpen) {
			p := o.OptParams[0].(*wire.OptionParameterCapability)
			var kept []wire.ParameterCapabilityInterface
			for _, c := range p.Capability {
				if c.Code() != code {
					kept = append(kept, c)
				}
			}
			o.OptParams[0] = wire.NewOptionParameterCapability(kept)
		}
	}
	for name, c := range map[string]struct {
		open   func(*wire.BGPOpen)
		say    *wire.BGPMessage
		words  string
		notice string
	}{
		"another AS": {open: func(o *wire.BGPOpen) {
			o.MyAS = 65001
			o.OptParams = []wire.OptionParameterInterface{wire.NewOptionParameterCapability([]wire.ParameterCapabilityInterface{wire.NewCapFourOctetASNumber(65001)})}
		}, words: "the reflector is in AS 65001, this host is configured for AS 65000", notice: "2/2"},
		"the same router ID": {open: func(o *wire.BGPOpen) { o.ID = hostID }, words: "router ID is 10.0.0.9, this host's 10.0.0.9", notice: "2/3"},
		"BGP 3":              {open: func(o *wire.BGPOpen) { o.Version = 3 }, words: "BGP version 3", notice: "2/1"},
		"hold time of 1 s":   {open: func(o *wire.BGPOpen) { o.HoldTime = 1 }, words: "hold time of 1 s", notice: "2/6"},
		"no 4-octet AS":      {open: without(wire.BGP_CAP_FOUR_OCTET_AS_NUMBER), words: "4-octet AS numbers", notice: "2/7"},
		"no family":          {open: without(wire.BGP_CAP_MULTIPROTOCOL), words: "offers none of IPv4 unicast", notice: "2/7"},
		"it expects another AS": {say: wire.NewBGPNotificationMessage(wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_BAD_PEER_AS, nil),
			words: "it expects this host in another AS"},
		"it does not know this host": {say: wire.NewBGPNotificationMessage(wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_CONNECTION_REJECTED, nil),
			words: "is this host a neighbour in its configuration?"},
		"a message of no type": {say: &wire.BGPMessage{Header: wire.BGPHeader{Type: 9}, Body: &wire.BGPKeepAlive{}}, words: "cannot be read", notice: "1/3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReflector(t, "127.0.0.1:0")
			r.open = c.open
			cfg := config(r)
			cfg.Reflectors[0].RetryTime = maxRetryTime // one attempt
			w := watch(t, cfg)
			r.greet()
			if c.say != nil {
				r.say(c.say)
			}
			w.until("an error about "+c.words, func() bool { return strings.Contains(w.lastError(), c.words) })
			w.until("a NOTIFICATION "+c.notice, func() bool { return r.notification() == c.notice })
		})
	}
}

// A reflector that accepts and says nothing, and one that hangs up.
func TestSilence(t *testing.T) {
	rung.Long(t) // 3 s is the shortest hold time there is
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	c := config(r)
	c.Reflectors[0].HoldTime = 3 * time.Second
	w := watch(t, c)
	conn, err := r.listener.Accept()
	must(t, err)
	w.until("an error", func() bool { return strings.Contains(w.lastError(), "nothing was heard") })
	must(t, conn.Close())
	conn, err = r.listener.Accept()
	must(t, err)
	must(t, conn.Close())
	w.until("an error", func() bool {
		return strings.Contains(w.lastError(), "does not know this host") || strings.Contains(w.lastError(), "reset by peer")
	})
}

// A reflector that wants no hold time may be silent in a session for ever, but not before it.
func TestNoHoldTime(t *testing.T) {
	rung.Long(t)
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	r.hold = 0
	c := config(r)
	c.Reflectors[0].HoldTime = 3 * time.Second
	w := watch(t, c)
	conn, err := r.listener.Accept()
	must(t, err)
	open, err := openMessage(&Config{AS: testAS, RouterID: reflectorID}, &Reflector{})
	must(t, err)
	_, err = conn.Write(encode(t, open, false))
	must(t, err)
	w.until("an error", func() bool { return strings.Contains(w.lastError(), "nothing was heard") })
	must(t, conn.Close())
	r.greet()
	w.event("up", 1)
	time.Sleep(4 * time.Second)
	if s := w.speaker.Sessions()[0]; s.State != Established {
		t.Errorf("without hold time the session ended: %+v", s)
	}
}

// A reflector that dies again and again right after it told its routes is asked less and less often, also if its host resets the connection.
func TestFlapping(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	watch(t, config(r))
	var first, last time.Time
	for i := range 6 {
		r.greet()
		if last = time.Now(); i == 0 {
			first = last
		}
		must(t, r.conn.(*net.TCPConn).SetLinger(0)) // reset
		must(t, r.conn.Close())
	}
	if took, least := last.Sub(first), 31*20*3*time.Millisecond/4; took < least {
		t.Errorf("5 attempts after the first took %v, at least %v are due: 20 ms, twice as long each time, less a quarter", took, least)
	}
}

// When the context ends the reflector is told, and the routes are not withdrawn.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newReflector(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan Event, 100)
	speaker, err := Start(ctx, config(r), func(e Event) {
		if routes, ok := e.(Routes); ok {
			e = Routes{append([]egress.Update(nil), routes.Updates...)}
		}
		events <- e
	})
	must(t, err)
	r.greet()
	r.say(vpn("2001:db8:c::/48").message(t))
	<-events // up
	<-events // the route
	cancel()
	speaker.Wait()
	if len(events) != 0 {
		t.Errorf("after the end came %+v", <-events)
	}
	for end := time.Now().Add(patience); r.notification() != "6/2"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the reflector was not told")
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no AS":          {func(c *Config) { c.AS = 0 }, "AS number is missing"},
		"IPv6 router ID": {func(c *Config) { c.RouterID = borderHop }, "want an IPv4 address"},
		"no reflector":   {func(c *Config) { c.Reflectors = nil }, "no route reflector"},
		"twice":          {func(c *Config) { c.Reflectors = append(c.Reflectors, c.Reflectors[0]) }, "configured twice"},
		"no address":     {func(c *Config) { c.Reflectors[0].Address = netip.Addr{} }, "want the address of a host"},
		"local address":  {func(c *Config) { c.Reflectors[0].LocalAddress = netip.MustParseAddr("192.0.2.1") }, "same family"},
		"long password":  {func(c *Config) { c.Reflectors[0].Password = strings.Repeat("x", 81) }, "up to 80"},
		"password and key": {func(c *Config) {
			c.Reflectors[0].Password, c.Reflectors[0].AOKeys = "x", []AOKey{{Key: "x", Algorithm: HMACSHA1}}
		}, "want one of them"},
		"long key":            {func(c *Config) { c.Reflectors[0].AOKeys = []AOKey{{Key: strings.Repeat("x", 81), Algorithm: HMACSHA1}} }, "want 1 to 80 bytes"},
		"key of no algorithm": {func(c *Config) { c.Reflectors[0].AOKeys = []AOKey{{Key: "x"}} }, "want one of [hmac-sha-1-96 aes-128-cmac-96]"},
		"hold time of 1 s":    {func(c *Config) { c.Reflectors[0].HoldTime = time.Second }, "want 3s to"},
		"negative limit":      {func(c *Config) { c.Reflectors[0].MaxPrefixes = -1 }, "want 1 or more"},
		"negative dial time":  {func(c *Config) { c.Reflectors[0].DialTime = -1 }, "dial time"},
	} {
		cfg := Config{AS: testAS, RouterID: hostID, Reflectors: []Reflector{{Address: borderHop}}}
		must(t, cfg.complete())
		c.change(&cfg)
		if _, err := Start(context.Background(), cfg, func(Event) {}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, c.want)
		}
	}
}

// TCP-MD5 needs no privilege.
func TestPassword(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		address  string
		password string
		works    bool
	}{
		"the same": {"127.0.0.1", "secret", true}, "the same, IPv6": {"::1", "secret", true},
		"another": {"127.0.0.1", "Secret", false}, "none": {"127.0.0.1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReflector(t, net.JoinHostPort(c.address, "0"))
			raw, err := r.listener.(*net.TCPListener).SyscallConn()
			must(t, err)
			must(t, setPassword(raw, netip.MustParseAddr(c.address), "secret"))
			cfg := config(r)
			cfg.Reflectors[0].Password = c.password
			cfg.Reflectors[0].DialTime = 300 * time.Millisecond
			if c.works {
				cfg.Reflectors[0].DialTime = patience
			}
			w := watch(t, cfg)
			if c.works {
				r.greet()
				w.event("up", 1)
				return
			}
			w.until("words about the password", func() bool { return strings.Contains(w.lastError(), "TCP-MD5 password is the same on both sides") })
		})
	}
}
