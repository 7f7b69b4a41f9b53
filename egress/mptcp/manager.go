package mptcp

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// Config is what a Manager is told.
type Config struct {
	// Exits are all EPE addresses of this host. Subflows on others are never touched.
	Exits []netip.Addr
	// Reachable says which exits a connection is to use, the best first, and may say something of the address it began on. It is called in the Manager's goroutine when a connection is established,
	// when a subflow comes up, when the first one or the last one goes that is no backup, and after Changed, so it must be quick and must not call the Manager. The slice is only read before the next call.
	Reachable func(Peer) []ExitAddress
	// Why says in words why the connection's use of an address of this host is what Reachable says; it is called like that, for what was removed, closed or changed; nil: nobody knows. Words are few: deeds
	// are told apart by them.
	Why func(Peer, netip.Addr) string
	// Joined hears of subflows that clients open, and from which of their addresses, in the same goroutine and under the same conditions; nil: nobody. Of those whose events were lost it hears with the next
	// Resync.
	Joined func(from, addr netip.Addr)
	// MaxSubflows of a connection, the first counted; 0 is 8, more than which Linux does not use. If there are more exits, the best of
	// them are announced; if a client opens more, for instance from several addresses of its own, they are closed.
	MaxSubflows int
	// ChangesPerSecond limits the commands to the kernel, a tenth of it at once; 0 is 10,000. What is over waits, removals before the rest.
	ChangesPerSecond int
	Log              *slog.Logger
}

// idBase is the lowest id given to an exit. The kernel numbers addresses it was not told from 1.
const idBase = 32

// repeatAfter: an ADD_ADDR is a bare ACK. If it is lost, or meets another not yet sent, Linux before 6.18 repeats it after 120 s
// (net.mptcp.add_addr_timeout). Without a subflow after these times, each from the one before, the Manager does. The first is for the
// second of two announcements made at once; peers ignore what they know. The last time is not for these: who has not come after four of them does not for a fifth.
var repeatAfter = [...]time.Duration{300 * time.Millisecond, 2 * time.Second, 4 * time.Second, 8 * time.Second, time.Minute}

// Which of repeatAfter an address stays withdrawn whose subflow the Manager has closed, and one whose subflow died of an error; and the longest, for one whose subflows die again and again.
const renewSoon, renewLate, renewLast = 0, 1, len(repeatAfter) - 1

// connection is one that a client opened.
type connection struct {
	Peer
	ready     bool // established, and neither the kernel's nor fallen back
	closing   bool // nothing is announced any more, but subflows are closed if their exit fails
	missed    bool // the last Sweep did not find it
	queued    urgency
	subflows  []Subflow
	announced []announcement
	resting   []netip.Addr // withdrawn, and announced again when repeat comes to them
	renewed   []renewal
	dropping  []Ends       // subflows that Drop had no budget for
	from      []netip.Addr // under which Manager.from has it: the client's, and those of its subflows
}

// renewal is when an address was last withdrawn to be announced again, and after which of repeatAfter.
type renewal struct {
	addr  netip.Addr
	at    time.Time
	level int
}

// urgency says what is done first.
type urgency int

const (
	unqueued urgency = iota
	failed           // an exit fails the client
	changed          // something may have to be removed
	deferred         // what the budget had no room for
)

type announcement struct {
	addr netip.Addr
	id   uint8
	// backup: MP_PRIO was sent for a subflow on it. From Linux 6.11 on the kernel remembers this for later ones.
	backup bool
	// joined: the client opened a subflow to it once, so it knows it.
	joined bool
	// refused by the kernel: not to be tried again on this connection.
	refused bool
}

// later is something to look after: an announcement, or the end of a closed connection.
type later struct {
	at    time.Time
	token uint32
	addr  netip.Addr
	renew bool // the address was withdrawn and may be announced again
}

// Manager keeps the picture of all connections and brings it to what Reachable says. It is not safe for concurrent use.
type Manager struct {
	config  Config
	kernel  Kernel
	ids     map[netip.Addr]uint8
	byToken map[uint32]*connection
	from    map[netip.Addr]map[*connection]bool // by the addresses their clients have come from, a second one of a client too
	queue   [deferred + 1][]*connection         // by urgency; a connection that became more urgent is in two
	repeats [len(repeatAfter)][]later
	closing []later // when to forget which connection
	budget  budget
	counts  Counts
	deeds   map[Deed]*Extent
	want    []ExitAddress // scratch
}

// New makes a Manager without connections.
func New(config Config, kernel Kernel) (*Manager, error) {
	if config.Reachable == nil {
		return nil, errors.New("manage MPTCP connections: no Reachable: give the function that says which exits reach a client")
	}
	if config.MaxSubflows == 0 {
		config.MaxSubflows = 8
	}
	if config.ChangesPerSecond == 0 {
		config.ChangesPerSecond = 10_000
	}
	if config.Why == nil {
		config.Why = func(Peer, netip.Addr) string { return "" }
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	ids, err := assignIDs(config.Exits)
	if err != nil {
		return nil, err
	}
	return &Manager{
		config: config, kernel: kernel, ids: ids, byToken: map[uint32]*connection{}, from: map[netip.Addr]map[*connection]bool{},
		budget: newBudget(config.ChangesPerSecond), deeds: map[Deed]*Extent{},
	}, nil
}

// assignIDs numbers the exits' addresses by themselves and not by their order, so that a Manager started anew says the same to
// connections that outlived the one before.
func assignIDs(exits []netip.Addr) (map[netip.Addr]uint8, error) {
	const n = 255 - idBase
	if len(exits) > n {
		return nil, fmt.Errorf("number %d EPE addresses: ids of ADD_ADDR are one byte: configure at most %d", len(exits), n)
	}
	sorted := slices.Clone(exits)
	slices.SortFunc(sorted, netip.Addr.Compare)
	ids, taken := map[netip.Addr]uint8{}, [n]bool{}
	for _, a := range slices.Compact(sorted) {
		h := fnv.New32a()
		_, _ = h.Write(a.AsSlice()) // never fails
		i := h.Sum32() % n
		for taken[i] {
			i = (i + 1) % n
		}
		taken[i] = true
		ids[a.Unmap()] = uint8(i + idBase)
	}
	return ids, nil
}

// Handle takes in one event. If it makes changes necessary, they are made before Handle returns, unless the budget is used up.
func (m *Manager) Handle(e Event, now time.Time) {
	c := m.byToken[e.Token]
	if e.Type == Established {
		if !e.Server {
			return
		}
		if c == nil || c.closing || !c.hasEnds(e.Ends()) { // the token of one that was closed or reset can be given again
			c = m.add(e.Token, e.Local, e.Remote)
			c.subflows = append(c.subflows, e.Subflow)
		}
	}
	if c == nil {
		return // not a client's, or closed already
	}
	switch e.Type {
	case Established:
		c.ready = true
		m.reconcile(c, deferred, now)
	case Closed:
		m.linger(c, now)
	case SubEstablished:
		if i := c.find(e.Subflow); i >= 0 {
			c.subflows[i].LocalID = e.LocalID
		} else {
			a := c.announcement(e.addr())
			if a != nil {
				a.joined, e.unsure = true, a.backup
			}
			c.subflows = append(c.subflows, e.Subflow)
			m.came(c, e.Remote.Addr().Unmap())
			m.counts.Joins++
			m.joined(e.Subflow)
		}
		m.reconcile(c, deferred, now)
	case SubClosed:
		if i := c.find(e.Subflow); i >= 0 {
			m.went(c, i)
			if e.Err != 0 {
				m.counts.SubflowErrors++
				if !c.has(e.addr()) { // RM_ADDR would close that one, too
					m.renew(c, e.addr(), renewLate, now)
				}
			}
			if e.addr() == c.Own.Addr() || !slices.ContainsFunc(c.subflows, func(s Subflow) bool { return !s.Backup }) { // none is left that was to carry
				m.reconcile(c, deferred, now)
			}
		}
	}
}

// Resync replaces the picture by what the kernel has. What was announced is kept of connections known before; to others it is
// announced anew, which changes nothing for those that know it.
func (m *Manager) Resync(all []Connection, now time.Time) {
	old := m.byToken
	m.byToken, m.from = make(map[uint32]*connection, len(all)), map[netip.Addr]map[*connection]bool{}
	m.queue, m.closing = [deferred + 1][]*connection{}, nil
	m.counts.Resyncs++
	for _, k := range all {
		if !k.Server {
			continue
		}
		c := m.add(k.Token, k.Local, k.Remote)
		c.subflows, c.ready = k.Subflows, !k.Fallback
		before := old[k.Token]
		c.Earlier = m.counts.Resyncs == 1
		if before != nil {
			c.Earlier = before.Earlier
		}
		if before != nil && before.Peer != c.Peer {
			before = nil
		}
		if before != nil {
			c.announced, c.resting, c.renewed, c.dropping = before.announced, before.resting, before.renewed, before.dropping
		}
		for _, s := range k.Subflows {
			m.came(c, s.Remote.Addr().Unmap())
			if first := s.Ends() == (Subflow{Local: k.Local, Remote: k.Remote}).Ends(); !first && (before == nil || before.find(s) < 0) {
				m.joined(s)
			}
		}
		c.adopt(m.ids)
		if before != nil {
			m.miss(c, before.subflows, now)
		}
		if k.Closing {
			m.linger(c, now)
		}
		m.enqueue(c, changed)
	}
	m.Tick(now)
}

// miss renews the addresses of subflows that ended unheard: whether of an error, nobody knows.
func (m *Manager) miss(c *connection, before []Subflow, now time.Time) {
	for _, s := range before {
		if !c.has(s.addr()) {
			m.renew(c, s.addr(), renewLate, now)
		}
	}
}

// joined tells of a subflow that a client opened.
func (m *Manager) joined(s Subflow) {
	if m.config.Joined != nil {
		m.config.Joined(s.Remote.Addr().Unmap(), s.addr())
	}
}

// restAfter is how many connections Changed looks at until it lets others do something.
const restAfter = 1024

// Changed says that other exits than before may reach some clients; nil: all. The work is done by Tick. The time it takes here is what within takes for each client; rest is called in
// between, and may let others call the Manager.
func (m *Manager) Changed(within func(netip.Addr) bool, rest func()) {
	n := 0
	for _, c := range m.byToken {
		if n++; n%restAfter == 0 {
			rest()
		}
		if m.byToken[c.Token] == c && (within == nil || within(c.Client)) { // Resync may have been called
			m.enqueue(c, changed)
		}
	}
}

// together is how long what is to be done later may wait for more of it: at 1,000 new connections a second, to be woken for each would cost more than to do it.
const together = 20 * time.Millisecond

// sliceOfWork is how many connections Tick looks at, so that events wait no longer than some milliseconds.
const sliceOfWork = 64

// Tick does what waits, and returns when to call it next; the zero time: nothing waits.
func (m *Manager) Tick(now time.Time) (next time.Time) {
	m.repeat(now)
	m.forget(now)
	for range sliceOfWork {
		if !m.budget.left(now) {
			break
		}
		c := m.dequeue()
		if c == nil {
			break
		}
		m.reconcile(c, deferred, now)
	}
	if m.waiting() > 0 {
		return m.budget.next(now)
	}
	for _, r := range append(m.repeats[:], m.closing) {
		if len(r) > 0 && (next.IsZero() || r[0].at.Add(together).Before(next)) {
			next = r[0].at.Add(together)
		}
	}
	return next
}

func (m *Manager) add(token uint32, local, remote netip.AddrPort) *connection {
	c := &connection{Peer: Peer{Token: token, Client: remote.Addr().Unmap(), Own: netip.AddrPortFrom(local.Addr().Unmap(), local.Port())}}
	if before := m.byToken[token]; before != nil {
		m.leave(before)
	}
	m.byToken[token] = c
	m.came(c, c.Client)
	m.counts.Seen++
	return c
}

// lingerFor: a server that writes its answer and closes leaves the rest to the kernel, which says nothing of it any more. How long that takes
// is unknown; what is still there after this time is left alone.
const lingerFor = 30 * time.Second

// linger keeps a connection that the application has closed for a while: what it had written may still need its subflows.
func (m *Manager) linger(c *connection, now time.Time) {
	if !c.closing {
		c.closing = true
		m.closing = append(m.closing, later{at: now.Add(lingerFor), token: c.Token})
	}
}

// forget drops connections that have lingered. One in a queue stays there; reconcile does nothing with it.
func (m *Manager) forget(now time.Time) {
	for len(m.closing) > 0 && !m.closing[0].at.After(now) {
		if c := m.byToken[m.closing[0].token]; c != nil && c.closing {
			c.ready = false
			m.leave(c)
		}
		m.closing = m.closing[1:]
	}
}

// adopt takes subflows on exits' addresses as proof that these were announced, by a Manager before this one.
func (c *connection) adopt(exits map[netip.Addr]uint8) {
	for _, s := range c.subflows {
		if _, exit := exits[s.addr()]; exit && s.LocalID != 0 && c.announcement(s.addr()) == nil {
			c.announced = append(c.announced, announcement{addr: s.addr(), id: s.LocalID, joined: true})
		}
	}
}

func (m *Manager) enqueue(c *connection, u urgency) {
	if c.queued != unqueued && c.queued <= u {
		return
	}
	c.queued = u
	m.queue[u] = append(m.queue[u], c)
}

func (m *Manager) dequeue() *connection {
	for u := range m.queue {
		for len(m.queue[u]) > 0 {
			c := m.queue[u][0]
			m.queue[u][0] = nil
			m.queue[u] = m.queue[u][1:]
			if c.queued == urgency(u) {
				c.queued = unqueued
				return c
			}
		}
	}
	return nil
}

// waiting is how many connections are in the queue, those that are in it twice counted twice.
func (m *Manager) waiting() (n int) {
	for _, q := range m.queue {
		n += len(q)
	}
	return n
}

func (c *connection) hasEnds(e Ends) bool {
	return slices.ContainsFunc(c.subflows, func(s Subflow) bool { return s.Ends() == e })
}

func (c *connection) find(s Subflow) int {
	return slices.IndexFunc(c.subflows, func(x Subflow) bool { return x.Local == s.Local && x.Remote == s.Remote })
}

func (c *connection) announcement(a netip.Addr) *announcement {
	for i := range c.announced {
		if c.announced[i].addr == a {
			return &c.announced[i]
		}
	}
	return nil
}
