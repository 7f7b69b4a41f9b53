// Package bgp is plait's BGP speaker on a content server: it hears from route reflectors which exits there are for which
// destination, and says it in the types of package egress. It announces nothing, accepts no connection, and opens no port.
//
// It speaks iBGP (RFC 4271) for IPv4 and IPv6 unicast and VPN routes (RFC 4760, 4364, 4659) with SRv6 service SIDs (RFC 9252),
// ADD-PATH (RFC 7911), graceful restart as the helper (RFC 4724, 8538), 4-octet AS numbers (RFC 6793), IPv6 next hops for IPv4
// (RFC 8950), messages of up to 65535 bytes (RFC 8654) and revised error handling (RFC 7606). TCP-AO (RFC 5925), with
// keys that change while the session is up, or TCP-MD5 (RFC 2385) protects a session.
//
// Messages are parsed by osrg/gobgp's packet library. Its server is not used, and internal/arch keeps it out: for 1 million VPN
// routes of one reflector it holds 790 MB of a table that nothing here reads, and a panic in it ends the process. See
// docs/egress/bgp.md.
//
//	go test ./egress/bgp
package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

// Config is what the speaker needs to know.
type Config struct {
	AS         uint32     // of this network: the reflectors are in it too
	RouterID   netip.Addr // an IPv4 address, of no other BGP speaker of this network (RFC 6286)
	Reflectors []Reflector
	Log        *slog.Logger // nil: silence
}

// Reflector is a route reflector (RFC 4456) to connect to. Two may not have the same address. Zero stands for the default.
type Reflector struct {
	Address      netip.Addr
	Port         uint16        // default 179
	Password     string        // for TCP-MD5, 1 to 80 bytes; empty: none
	AOKeys       []AOKey       // for TCP-AO, instead of a password: the first signs, until the reflector asks for another
	LocalAddress netip.Addr    // of this host; default: what the kernel chooses
	MaxPrefixes  int           // routes of all families, refused ones too; one more ends the session for good. Default: 5,000,000
	HoldTime     time.Duration // without a message of the reflector for so long, the session ends; default 90 s, at least 3 s
	RetryTime    time.Duration // between attempts to connect, grows to 2 minutes while the session fails; default 5 s
	DialTime     time.Duration // for an answer to an attempt; default 10 s
}

// defaultMaxPrefixes is more than the whole Internet by three exits and as best path (1.3 million routes in 2026), and less memory than a server has.
const defaultMaxPrefixes = 5_000_000

// Family is an address family.
type Family uint8

// The families the speaker asks for.
const (
	IPv4 Family = iota
	IPv6
	VPNv4
	VPNv6
	families = 4
)

var familyNames = [families]string{"IPv4 unicast", "IPv6 unicast", "VPNv4", "VPNv6"}

func (f Family) String() string { return familyNames[f] }

// Families of the wire, in the order of the constants above.
var wireFamilies = [families]wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC, wire.RF_IPv4_VPN, wire.RF_IPv6_VPN}

// familyOf returns -1 for a family the speaker does not know.
func familyOf(f wire.Family) int { return slices.Index(wireFamilies[:], f) }

// Event is one of Up, Down, Routes and EndOfRIB.
type Event interface{ event() }

// Up says that the session to a reflector is established. Its routes follow.
type Up struct {
	Reflector netip.Addr
	// Agreed are the families it will tell of, by Family.
	Agreed [families]bool
}

// Down says that an established session ended. Its routes are withdrawn in the Routes that follow, except Kept of them: those
// stay until the reflector is back and has told all, or until the time it asked for has passed (graceful restart).
type Down struct {
	Reflector netip.Addr
	Reason    string
	Kept      int
}

// Routes is what one reflector has told, in its order. The slice is the receiver's for the call only. A Route is for good, it
// may be the same for many keys, and nobody may write to it. Withdrawn is only what was announced.
type Routes struct{ Updates []egress.Update }

// EndOfRIB says that a reflector has told all its routes of a family once since the session came up (RFC 4724 section 2).
type EndOfRIB struct {
	Reflector netip.Addr
	Family    Family
}

func (Up) event()       {}
func (Down) event()     {}
func (Routes) event()   {}
func (EndOfRIB) event() {}

// Speaker holds one session for each reflector.
type Speaker struct {
	config   Config
	sessions []*session
	interner *interner
	stopped  sync.WaitGroup

	events sync.Mutex // one call of deliver at a time
	handle func(Event)
}

// Start connects to the reflectors and goes on until ctx ends. It calls handle for one event at a time; while handle does not
// return, the reflectors wait. When ctx ends nothing is withdrawn: what becomes of the routes then is the caller's decision.
func Start(ctx context.Context, config Config, handle func(Event)) (*Speaker, error) {
	config.Reflectors = slices.Clone(config.Reflectors)
	if err := config.complete(); err != nil {
		return nil, err
	}
	s := &Speaker{config: config, interner: newInterner(), handle: handle}
	for _, r := range config.Reflectors {
		s.sessions = append(s.sessions, newSession(s, r))
	}
	for _, session := range s.sessions {
		s.stopped.Go(func() { session.run(ctx) })
	}
	return s, nil
}

// Wait returns when ctx of Start has ended and all sessions are closed. Then there are no more events.
func (s *Speaker) Wait() { s.stopped.Wait() }

// Sessions tells how the sessions are, in the order of the configuration.
func (s *Speaker) Sessions() []Session {
	out := make([]Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		out = append(out, session.snapshot())
	}
	return out
}

func (s *Speaker) deliver(e Event) {
	s.events.Lock()
	defer s.events.Unlock()
	s.handle(e)
}

// complete checks the configuration and puts defaults in. Durations are whole seconds on the wire.
func (c *Config) complete() error {
	if c.AS == 0 {
		return errors.New("BGP: the AS number is missing")
	}
	if !c.RouterID.Is4() || c.RouterID.IsUnspecified() {
		return fmt.Errorf("BGP: router ID %s: want an IPv4 address that no other BGP speaker of the network has as its ID", c.RouterID)
	}
	if len(c.Reflectors) == 0 {
		return errors.New("BGP: no route reflector is configured")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	seen := map[netip.Addr]bool{}
	for i := range c.Reflectors {
		r := &c.Reflectors[i]
		r.Address = r.Address.Unmap()
		if seen[r.Address] {
			return fmt.Errorf("BGP: reflector %s is configured twice", r.Address)
		}
		seen[r.Address] = true
		if err := r.complete(); err != nil {
			return fmt.Errorf("BGP: reflector %s: %w", r.Address, err)
		}
	}
	return nil
}

func (r *Reflector) complete() error {
	if r.Port == 0 {
		r.Port = wire.BGP_PORT
	}
	if r.MaxPrefixes == 0 {
		r.MaxPrefixes = defaultMaxPrefixes
	}
	for _, d := range []struct {
		value                  *time.Duration
		name                   string
		byDefault, least, most time.Duration
	}{
		{&r.HoldTime, "hold time", 90 * time.Second, 3 * time.Second, 65535 * time.Second}, // RFC 4271 section 4.2
		{&r.RetryTime, "retry time", 5 * time.Second, time.Millisecond, maxRetryTime},
		{&r.DialTime, "dial time", 10 * time.Second, time.Millisecond, time.Hour},
	} {
		if *d.value == 0 {
			*d.value = d.byDefault
		}
		if *d.value < d.least || *d.value > d.most {
			return fmt.Errorf("%s %s: want %s to %s", d.name, *d.value, d.least, d.most)
		}
	}
	switch {
	case !r.Address.IsValid() || r.Address.IsUnspecified() || r.Address.IsMulticast():
		return errors.New("want the address of a host")
	case r.LocalAddress.IsValid() && r.LocalAddress.Is4() != r.Address.Is4():
		return fmt.Errorf("local address %s: want one of the same family as the reflector's", r.LocalAddress)
	case len(r.Password) > md5KeyMax:
		return fmt.Errorf("the password has %d bytes: TCP-MD5 takes up to %d", len(r.Password), md5KeyMax)
	case r.Password != "" && len(r.AOKeys) > 0:
		return errors.New("a password and TCP-AO keys: want one of them")
	case slices.ContainsFunc(r.AOKeys, func(k AOKey) bool { return k.Key == "" || len(k.Key) > aoKeyMax }):
		return fmt.Errorf("a TCP-AO key is empty or too long: want 1 to %d bytes", aoKeyMax)
	case r.MaxPrefixes < 0:
		return fmt.Errorf("limit of %d prefixes: want 1 or more, or 0 for the default", r.MaxPrefixes)
	}
	return CheckAOKeys(r.AOKeys)
}
