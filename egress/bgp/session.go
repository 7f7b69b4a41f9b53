package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

const (
	maxRetryTime = 2 * time.Minute
	// A session that lasted so long has worked: the time between attempts begins small again.
	provenTime = time.Minute
	// After its return a reflector has so long to tell all routes again, until those it has not told go (RFC 4724 section 4.2).
	staleTime = 6 * time.Minute
	// A reflector that has just returned may not have heard of all again itself when it says that it has told all: its own neighbours have so long.
	lateTime = 30 * time.Second
	// Updates that are handed over at once, at most.
	batchSize = 4096
)

// session is what there is for one reflector: connection after connection.
type session struct {
	speaker   *Speaker
	reflector Reflector
	log       *slog.Logger

	// work guards what follows and keeps events in order: it is held while they are handed over.
	work    sync.Mutex
	tables  [families]table
	batch   []egress.Update
	changes []change
	epoch   int // turns with each beginning and end of a session, so that a timer knows whether it is out of date
	timer   *time.Timer
	pace    pace
	later   *time.Timer // hands over what waits for its turn; nil: nothing does

	// status is for those who ask; it is never held for long.
	status sync.Mutex
	shown  Session
	key    int // which of the reflector's TCP-AO keys signs
	refuse [refusals]Refused
}

// limitError ends a session: the reflector told more routes than it may.
type limitError struct{ *protocolError }

func (e limitError) Unwrap() error { return e.protocolError }

func newSession(s *Speaker, r Reflector) *session {
	out := &session{speaker: s, reflector: r, log: s.config.Log.With("reflector", r.Address), pace: newPace()}
	out.shown.Reflector = r.Address
	for f := range out.tables {
		out.tables[f].known = map[routeKey]bool{}
	}
	return out
}

// run keeps a session to the reflector until ctx ends.
func (s *session) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		lasted, err := s.once(ctx)
		if ctx.Err() != nil {
			break
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" || lasted > provenTime {
			failures = 0 // what does not answer costs nothing to ask again; a connection that is reset may have told all its routes
		}
		s.failed(err, lasted > 0)
		if _, ok := errors.AsType[limitError](err); ok {
			s.set(Shut)
			<-ctx.Done()
			break
		}
		wait := min(s.reflector.RetryTime<<min(failures, 16), maxRetryTime)
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration((0.75 + 0.25*rand.Float64()) * float64(wait))): // RFC 4271 section 10
		}
	}
	s.work.Lock()
	defer s.work.Unlock()
	s.stopTimer()
	s.batch = nil // what still waits for its turn is nobody's
	s.set(Idle)
}

// once connects, agrees on a session, and lives it to its end. It returns how long the session was established.
func (s *session) once(ctx context.Context) (lasted time.Duration, err error) {
	s.set(Connect)
	conn, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	p := newPeer(conn)
	stop := context.AfterFunc(ctx, func() {
		p.close(&protocolError{code: wire.BGP_ERROR_CEASE, sub: wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN})
	})
	defer stop()
	defer func() { p.close(err) }()
	a, err := s.introduce(p)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	s.up(a)
	err = s.receive(ctx, p, a)
	if ctx.Err() == nil {
		s.down(a, err)
	}
	return time.Since(began), err
}

func (s *session) dial(ctx context.Context) (net.Conn, error) {
	r := s.reflector
	d := net.Dialer{Timeout: r.DialTime}
	d.SetMultipathTCP(false) // MPTCP excludes TCP-MD5 and TCP-AO
	if r.LocalAddress.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.LocalAddress, 0))
	}
	same := "the TCP-MD5 password is the same on both sides"
	keys := s.keys()
	switch {
	case len(keys) > 0:
		d.Control = func(_, _ string, c syscall.RawConn) error { return protect(c, r.Address, keys) }
		same = fmt.Sprintf("BGP listens there, and that the reflector has the TCP-AO key that was tried, %s, with receive ID %d and send ID %d", keys[0].Algorithm, keys[0].SendID, keys[0].ReceiveID)
	case r.Password != "":
		d.Control = func(_, _ string, c syscall.RawConn) error { return setPassword(c, r.Address, r.Password) }
	}
	to := netip.AddrPortFrom(r.Address, r.Port).String()
	conn, err := d.DialContext(ctx, "tcp", to)
	switch {
	case err == nil:
		return conn, nil
	case os.IsTimeout(err): // Go has two errors for the dialer's time and one for the kernel's
		s.useKey(s.key + 1)
		return nil, fmt.Errorf("connect to %s: no answer in %s: check the address and the way to it, and that %s: %w", to, r.DialTime, same, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to %s: refused: does BGP run there and listen on this address?: %w", to, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && r.LocalAddress.IsValid():
		return nil, fmt.Errorf("connect to %s: this host has no address %v: add it, or correct address in the configuration: %w", to, r.LocalAddress, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", to, err)
}

// introduce exchanges the OPEN messages and their confirmation.
func (s *session) introduce(p *peer) (*agreement, error) {
	open, err := openMessage(&s.speaker.config, &s.reflector)
	if err != nil {
		return nil, fmt.Errorf("make the OPEN message: %w", err)
	}
	if err := p.write(open); err != nil {
		return nil, err
	}
	s.set(OpenSent)
	body, err := s.expect(p, wire.BGP_MSG_OPEN, s.reflector.HoldTime)
	if err != nil {
		return nil, err
	}
	a, err := agree(body.(*wire.BGPOpen), &s.speaker.config, &s.reflector)
	if err != nil {
		return nil, err
	}
	if err := p.write(wire.NewBGPKeepAliveMessage()); err != nil {
		return nil, err
	}
	s.set(OpenConfirm)
	if _, err := s.expect(p, wire.BGP_MSG_KEEPALIVE, cmp.Or(a.holdTime, s.reflector.HoldTime)); err != nil { // without hold time, too, this one is due
		return nil, err
	}
	if a.extended {
		p.limit = wire.BGP_MAX_EXTENDED_MESSAGE_LENGTH
	}
	a.own, err = ownAddresses()
	return a, err
}

// ownAddresses are those of this host. A BGP daemon beside plait may announce them, and then they are next hops of what the reflector tells.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this host: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr()] = true
		}
	}
	return own, nil
}

// expect reads a message of a kind; another one ends the session.
func (s *session) expect(p *peer, kind uint8, hold time.Duration) (body wire.BGPBody, err error) {
	got, raw, err := p.read(hold)
	if err != nil {
		return nil, err
	}
	defer survive(got, raw, &err)
	m, _, err := parse(got, raw, nil)
	if err != nil {
		return nil, err
	}
	if n, ok := m.Body.(*wire.BGPNotification); ok {
		return nil, &notified{n.ErrorCode, n.ErrorSubcode}
	}
	if got != kind {
		return nil, &protocolError{code: wire.BGP_ERROR_FSM_ERROR, words: fmt.Sprintf("the reflector sent a message of type %d instead of %d", got, kind)}
	}
	return m.Body, nil
}

// receive reads messages until the session ends.
func (s *session) receive(ctx context.Context, p *peer, a *agreement) error {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	sending.Go(func() { s.runKeepalives(ctx, p, a) })
	defer sending.Wait()
	defer cancel()
	if err := s.endOfRIB(p, a); err != nil {
		return err
	}
	for {
		if !p.pending() {
			s.flushInTurn()
		}
		kind, body, err := p.read(a.holdTime)
		if err != nil {
			s.flush()
			return err
		}
		if err := s.take(kind, body, a); err != nil {
			s.flush()
			return err
		}
	}
}

// runKeepalives says that this host lives, three times in each hold time (RFC 4271 section 4.4), and follows the reflector's TCP-AO
// key as often: without hold time, too, when it says nothing.
func (s *session) runKeepalives(ctx context.Context, p *peer, a *agreement) {
	ticker := time.NewTicker(cmp.Or(a.holdTime, s.reflector.HoldTime) / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.followKey(p)
			if a.holdTime > 0 && p.write(wire.NewBGPKeepAliveMessage()) != nil {
				_ = p.conn.Close() // wakes the reader, which knows what to do
				return
			}
		}
	}
}

// endOfRIB says that this host has told all its routes, which are none. A reflector that has restarted waits for it
// (RFC 4724 section 4.1).
func (s *session) endOfRIB(p *peer, a *agreement) error {
	if !a.restart {
		return nil
	}
	for f, agreed := range a.agreed {
		if agreed {
			if err := p.write(wire.NewEndOfRib(wireFamilies[f])); err != nil {
				return err
			}
		}
	}
	return nil
}
