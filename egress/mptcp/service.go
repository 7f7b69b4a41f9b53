package mptcp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Service manages the connections of the network namespace it was opened in.
type Service struct {
	kernel *commands
	events *events

	mu      sync.Mutex // guards what follows
	manager *Manager
	lost    uint64
	slowest time.Duration
	armed   time.Time // when run's timer fires; zero: not at all
	ended   bool

	// sooner tells run that its timer has to fire earlier.
	sooner chan struct{}

	changes struct {
		sync.Mutex
		prefixes []netip.Prefix
		all      bool
		signal   chan struct{}
	}
}

// changesPause is the least time between two looks for clients whose exits changed; it is ten times what the last look took, if that
// is more. So busy BGP costs no more than a tenth of a core, while the first change after a quiet time is acted on at once.
const changesPause = 50 * time.Millisecond

// resyncPause is the least time between two readings of all connections: a host too busy for the events must not be kept busy by them.
const resyncPause = time.Second

// resyncTries is how often in a row the kernel may refuse to show them.
const resyncTries = 10

// Open subscribes to the events of the calling thread's network namespace and makes a picture of the connections that exist. It needs
// CAP_NET_ADMIN. Nothing changes before Run.
func Open(config Config) (*Service, error) {
	kernel, err := openCommands()
	if err != nil {
		return nil, err
	}
	s := &Service{kernel: kernel, sooner: make(chan struct{}, 1)}
	s.changes.signal = make(chan struct{}, 1)
	if s.manager, err = New(config, kernel); err == nil {
		s.events, err = s.subscribe()
	}
	if err != nil {
		kernel.conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *Service) subscribe() (*events, error) {
	return openEvents(s.kernel.group, Established, Closed, SubEstablished, SubClosed)
}

// Changed says that other exits than before may reach clients within the prefixes; without any, all clients. It returns at once.
func (s *Service) Changed(prefixes ...netip.Prefix) {
	s.changes.Lock()
	s.changes.prefixes = append(s.changes.prefixes, prefixes...)
	s.changes.all = s.changes.all || len(prefixes) == 0
	s.changes.Unlock()
	select {
	case s.changes.signal <- struct{}{}:
	default: // one is on the way
	}
}

// Act is Changed for clients whose connections cannot wait: what is to be done for them is done when it returns, as far as the budget goes. Events are acted on in between.
func (s *Service) Act(clients ...netip.Addr) {
	for some := range slices.Chunk(clients, sliceOfWork) {
		each := map[netip.Addr]bool{}
		for _, c := range some {
			each[c] = true
		}
		s.act(each)
	}
}

func (s *Service) act(clients map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); !s.ended {
		s.manager.Act(clients, now)
		s.work(now)
	}
}

// Present says whether a client has connections.
func (s *Service) Present(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.Present(client)
}

// Around returns the subflows of each connection that has one of these, as Manager.Around does.
func (s *Service) Around(some map[Ends]bool) []Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.Around(some)
}

// Flows returns subflows of a client, as Manager.Flows does.
func (s *Service) Flows(client netip.Addr, most int) []Subflow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.Flows(client, most)
}

// Drop closes subflows that bring nothing to their client, as Manager.Drop does.
func (s *Service) Drop(some map[Ends]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && len(some) > 0 {
		now := time.Now()
		s.manager.Drop(some, now)
		s.work(now)
	}
}

// takeChanges returns the prefixes that changed, none if all did. The signal may come once more than there was a change.
func (s *Service) takeChanges() (prefixes []netip.Prefix, are bool) {
	s.changes.Lock()
	defer s.changes.Unlock()
	are = s.changes.all || len(s.changes.prefixes) > 0
	if !s.changes.all {
		prefixes = s.changes.prefixes
	}
	s.changes.prefixes, s.changes.all = nil, false
	return prefixes, are
}

// ServiceStatus is how things stand.
type ServiceStatus struct {
	Status
	// Lost is how many times the kernel had more events than room for them; the picture was read anew then.
	Lost uint64
	// Slowest is the longest time from reading an event to having acted on it.
	Slowest time.Duration
}

// Status may be asked from any goroutine.
func (s *Service) Status() ServiceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ServiceStatus{s.manager.Status(), s.lost, s.slowest}
}

// Deeds returns what was done since the last call, as Manager.Deeds does.
func (s *Service) Deeds() []Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.Deeds()
}

// TakeCensus counts the connections of the calling thread's network namespace by what became of MPTCP. It takes about 3 ms
// and 16 µs a connection.
func TakeCensus() (Census, error) {
	inv, err := takeInventory()
	if err != nil {
		return Census{}, err
	}
	return inv.census, nil
}

// runReader acts on events as they come, until some are lost or the socket is closed; then it sends why. It does so itself, without
// handing them over to run, because a change of goroutines costs more than an event.
func (s *Service) runReader(conn *events, end chan<- error) {
	for {
		events, err := conn.receive()
		if err != nil {
			end <- err
			return
		}
		s.handle(events)
	}
}

func (s *Service) handle(events []Event) {
	begin := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	now := time.Now()
	for _, e := range events {
		s.manager.Handle(e, now)
	}
	s.work(now)
	s.slowest = max(s.slowest, time.Since(begin))
}

// work does what waits, and tells run when there is more to do sooner than it knows. The caller has s.mu.
func (s *Service) work(now time.Time) {
	if next := s.manager.Tick(now); !next.IsZero() && (s.armed.IsZero() || next.Before(s.armed)) {
		select {
		case s.sooner <- struct{}{}:
		default: // run is about to look anyway
		}
	}
}

// resync reads the picture anew, from a new subscription that is older than it: what happens meanwhile is in both or in the events. So no
// event is missing, and one that is in both changes nothing. Those of the last subscription are thrown away: lost, unless it is the first time.
func (s *Service) resync(first bool) (end chan error, err error) {
	conn, err := s.subscribe()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.events.Close()
	s.events = conn
	if !first {
		s.lost++
	}
	s.mu.Unlock()
	inv, err := takeInventory()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.manager.Resync(inv.connections, time.Now())
	s.mu.Unlock()
	end = make(chan error, 1)
	go s.runReader(s.events, end)
	return end, nil
}

// resyncAgain reads the picture anew, not sooner than resyncPause after the last time. A host that is short of memory or files for a moment
// refuses; the connections go on as they are meanwhile.
func (s *Service) resyncAgain(ctx context.Context, last time.Time) (end chan error, err error) {
	for range resyncTries {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(time.Until(last.Add(resyncPause))):
		}
		if end, err = s.resync(false); err == nil {
			return end, nil
		}
		last = time.Now()
		s.manager.config.Log.Warn("MPTCP connections cannot be read: it is tried again", "err", err)
	}
	return nil, err
}

// Run manages until the context ends, and then leaves the connections as they are: they go on with the subflows they have, until another
// Service finds them. An error says that the kernel refused to show connections or events, and went on to for 10 s if it had shown them before.
func (s *Service) Run(ctx context.Context) error {
	return errors.Join(s.run(ctx), s.Close())
}

// Close gives up what Open got, also without Run. A second call does nothing.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	return errors.Join(s.events.Close(), s.kernel.conn.Close())
}

func (s *Service) run(ctx context.Context) error {
	end, err := s.resync(true)
	if err != nil {
		return err
	}
	timer, sweep := time.NewTimer(0), time.NewTimer(sweepEvery)
	defer sweep.Stop()
	var changed bool
	var look, resynced time.Time // not before; last
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-end:
			s.manager.config.Log.Warn("events of MPTCP connections may be lost: all connections are read again", "err", err)
			if end, err = s.resyncAgain(ctx, resynced); err != nil {
				return err
			}
			resynced = time.Now()
		case <-s.changes.signal:
			changed = true
		case <-sweep.C:
			sweep.Reset(s.sweep())
		case <-s.sooner:
		case <-timer.C:
		}
		if begin := time.Now(); changed && !begin.Before(look) {
			s.look()
			changed = false
			now := time.Now()
			look = now.Add(max(changesPause, 10*now.Sub(begin)))
		}
		s.tick(timer, changed, look)
	}
}

func (s *Service) look() {
	prefixes, are := s.takeChanges()
	if !are {
		return
	}
	var within func(netip.Addr) bool
	if len(prefixes) > 0 {
		within = newPrefixSet(prefixes).contains // of a full table that takes its time
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager.Changed(within, func() { s.mu.Unlock(); s.mu.Lock() })
}

// tick lets the manager do what waits and sets the timer to when there is more to do.
func (s *Service) tick(timer *time.Timer, changed bool, look time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.manager.Tick(time.Now())
	if changed && (next.IsZero() || look.Before(next)) {
		next = look
	}
	s.armed = next
	if next.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(time.Until(next))
}
