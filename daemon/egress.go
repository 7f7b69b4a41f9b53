package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/bgp"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/egress/route"
)

const (
	// lookEvery is how often the flows' counters are read, unless that takes more than a fiftieth of the time.
	lookEvery = time.Second
	// untimedEvery is how often it is said that flows have no timers.
	untimedEvery = time.Hour
)

// exits is the lever egress at work. Goroutines: one of bgp for each reflector, one of mptcp, two of runFlows, one of runTransfers, one of runRoutes, ask and inquire at
// times, and run.
type exits struct {
	config    Egress
	log       io.Writer
	speaker   *bgp.Speaker
	mptcp     *mptcp.Service  // nil unless the mode is on
	flows     *flows          // nil if the kernel cannot
	saved     string          // where the path manager there was is kept
	memory    string          // where what was found out about prefixes is kept
	overdue   chan mptcp.Ends // flows whose stalls the kernel half cannot tell
	stalls    chan struct{}   // one has stalled
	unwatched string          // why the kernel cannot watch flows
	unseen    string          // why the packets of the interface are not seen; for run's goroutine
	untimedAt time.Time       // when it was last said that flows have no timers; for run's goroutine
	telling   *telling        // until the reflectors have told all; of handle, which the speaker calls one at a time
	quiet     *time.Timer     // ends then
	running   sync.WaitGroup  // what run starts

	// writing is held by whoever changes the kernel's routes, which can take seconds. The plan changes under both locks, so either is enough to read it. It is taken
	// before mu, and not by what must be quick.
	writing   sync.Mutex
	kernel    *route.Kernel // nil unless the mode is on
	settled   atomic.Bool   // the plan is complete enough to be the kernel's
	begun     chan struct{} // closed then, and when the kernel has been made so
	undone    chan struct{} // steps failed that are to be tried again
	misplaced chan struct{} // exits went out or came back, which the main table does not know yet
	// lacking is what the kernel lacks of the plan, as far as was found last; nil: nothing.
	lacking atomic.Pointer[string]

	counting  sync.Mutex // guards census and countedAt
	census    *mptcp.Census
	countedAt time.Time

	// What run's goroutine finds out of flows. Any may ask, and waits for some microseconds at the most, except for networks.
	traffic   *egress.Traffic[bpf.FlowKey]
	networks  *egress.Networks // those of the clients; not to be asked under mu
	brownouts *egress.Brownouts
	shares    *egress.Shares

	// mu guards what follows. Who decides for a connection waits for it, so it is not held for as long as it takes to go through all clients or flows.
	mu      sync.Mutex
	plan    *egress.Plan
	health  *egress.Health
	journal journal
	byExit  map[string]map[bool]netip.Addr // address of an exit, by name and whether it is IPv4
	// aside are the exits that are out of the main table for a prefix, and since when; asking are the prefixes for which that is about to be found out.
	aside  map[putAside]time.Time
	asking map[netip.Prefix]asked
	asks   bool // ask runs
	// outages are the exits that are out as a whole; inquired are those of which that is about to be found out.
	outages  *egress.Outages
	inquired map[string]bool
	choice
}

func (x *exits) logf(format string, args ...any) { fmt.Fprintf(x.log, "egress: "+format+"\n", args...) }

// note keeps a change of the kernel's routes for plait egress log.
func (x *exits) note(s route.Step) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.write(&x.journal.routes, s.String())
}

// say keeps a decision for plait egress log. The caller has x.mu.
func (x *exits) say(text string) { x.write(&x.journal.decisions, text) }

func (x *exits) write(to *pages, text string) {
	if line := to.add(JournalEntry{time.Now(), text}); line != "" {
		x.logf("%s", line)
	}
}

// change changes the plan, and then the kernel's routes.
func (x *exits) change(plan func() []egress.Change) []egress.Change {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.Lock()
	changes := plan()
	x.mu.Unlock()
	switch {
	case !x.settled.Load():
	case x.kernel == nil:
		x.would(changes)
	default:
		if err := x.kernel.Apply(changes); err != nil { // each step that failed is in the journal
			if !errors.Is(err, route.ErrUncompared) {
				x.lacks(err)
			}
			select {
			case x.undone <- struct{}{}:
			default: // that is known
			}
		}
	}
	return changes
}

// routes takes in what a reflector told.
func (x *exits) routes(updates []egress.Update) {
	x.tell(x.change(func() []egress.Change { return x.plan.Apply(updates) }))
}

// tell has the connections looked at that changes of the plan concern: of an exit's table they change who reaches a client, of the main table where the first
// subflow goes. Until the plan is complete there is nobody to keep that for: all connections are looked at then.
func (x *exits) tell(changes []egress.Change) {
	if x.mptcp == nil || len(changes) == 0 || !x.settled.Load() {
		return
	}
	changed := make([]netip.Prefix, 0, len(changes))
	for _, c := range changes {
		e := c.New
		if e == nil {
			e = c.Old
		}
		changed = append(changed, e.Prefix)
	}
	x.mptcp.Changed(changed...)
}

func (x *exits) handle(event bgp.Event) {
	if !x.settled.Load() {
		if wait, is := x.telling.hear(event, time.Now()); is {
			x.quiet.Reset(wait)
		}
	}
	switch e := event.(type) {
	case bgp.Up:
		x.logf("session with reflector %v is up", e.Reflector)
	case bgp.Down:
		x.logf("session with reflector %v is down: %s; %d of its routes are kept for now", e.Reflector, e.Reason, e.Kept)
	case bgp.Routes:
		x.routes(e.Updates)
	}
}

// see has the packets of the interface seen, also when it comes late or is made anew, and says when they are not, and when they are again.
func (x *exits) see() {
	why := ""
	if err := x.flows.attach(); err != nil {
		why = err.Error()
	} else if !x.flows.seeing() {
		why = "there is no interface " + x.config.Interface
	}
	if why == x.unseen {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unseen = why; why == "" {
		x.say("the packets of interface " + x.config.Interface + " are seen again")
	} else {
		x.say("flows are not measured, and failures of exits are left to BGP: " + why)
	}
}

// untimed says that the kernel has no timers for some flows, or no room for what they tell.
func (x *exits) untimed(flows, of int, now time.Time) {
	if flows == 0 || now.Sub(x.untimedAt) < untimedEvery {
		return
	}
	x.untimedAt = now
	x.mu.Lock()
	defer x.mu.Unlock()
	x.say(fmt.Sprintf("the kernel has no timer for %d of %d flows: that what they send is not answered is noticed one to two seconds later than it could be", flows, of))
}

// look reads the flows' counters and returns how long that took.
func (x *exits) look(now time.Time) time.Duration {
	if x.flows == nil {
		return 0
	}
	x.see()
	flows := map[bpf.FlowKey]egress.FlowCount{}
	rules, clients := map[uint32]uint32{}, map[uint32]netip.Addr{}
	timerless, at := 0, x.places()
	err := x.flows.count(func(k bpf.FlowKey, e mptcp.Ends, s *bpf.FlowStats) {
		client := e.Remote.Addr()
		best := at(client).main
		exit := cmp.Or(x.ownExit(e.Local.Addr()), best)
		if s.Armed == bpf.FlowRefused {
			timerless++
		}
		if overdue(s) {
			select {
			case x.overdue <- e:
			default: // the next look finds it again
			}
		}
		flows[k] = egress.FlowCount{Exit: exit, Moved: exit != best, Client: client, AckedBytes: s.AckedBytes, SentSegments: s.SentSegments, Resent: s.RetransmittedSegments, SRTTUs: s.SrttUs, Waits: waits(s)}
		if s.Rule != 0 && s.Token != 0 {
			rules[s.Token], clients[s.Token] = s.Rule, client
		}
	})
	if err != nil {
		x.logf("%v", err)
		return 0
	}
	x.untimed(timerless, len(flows), now)
	x.learn(flows, at, now)
	if x.mptcp != nil {
		fresh := x.services.news(rules, clients) // nobody else changes what is known
		x.mu.Lock()
		defer x.mu.Unlock()
		x.services.found(rules, fresh)
	}
	return time.Since(now)
}

// place is where a client is, as the plan has it.
type place struct {
	main    string // the exit of the best path
	network netip.Prefix
}

// places says so, and remembers it: a client has several flows.
func (x *exits) places() func(netip.Addr) place {
	known := map[netip.Addr]place{}
	return func(client netip.Addr) place {
		if p, is := known[client]; is {
			return p
		}
		x.mu.Lock() // for one client at a time: who decides for a connection must not wait for all
		p := place{x.plan.MainExit(client), x.plan.Network(client)}
		x.mu.Unlock()
		known[client] = p
		return p
	}
}

// learn takes in what all flows have done.
func (x *exits) learn(flows map[bpf.FlowKey]egress.FlowCount, at func(netip.Addr) place, now time.Time) {
	x.traffic.Look(flows, now)
	did, passed := x.traffic.Did()
	x.networks.Look(maps.Values(did), func(client netip.Addr) netip.Prefix { return at(client).network }, passed)
	x.acknowledged(now.Add(-passed))
}

// runConnections manages subflows, but not before the plan is complete: to one that is empty, those of a plait before this one would lead nowhere.
func (x *exits) runConnections(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-x.begun:
		return x.mptcp.Run(ctx)
	}
}

// run watches over the lever until ctx ends.
func (x *exits) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 3)
	start := func(run func() error) { x.running.Go(func() { failed <- run() }) }
	x.running.Go(func() { x.runRoutes(ctx) })
	if x.mptcp != nil {
		start(func() error { return x.runConnections(ctx) })
	}
	if x.flows != nil && x.mptcp != nil {
		start(x.runFlows)
		start(x.runTransfers)
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("manage the subflows of connections: %w", err)
			}
		case now := <-second.C:
			if x.mptcp == nil {
				break
			}
			if x.flows != nil {
				x.recover(now)
			}
			x.commands(x.mptcp.Deeds())
		case <-look.C:
			now := time.Now() // the timer's own time is when it should have been heard
			look.Reset(max(lookEvery, 50*x.look(now)))
			if x.mptcp != nil { // also without flows: connections are to be forgotten, and decisions of a plait before this one end
				x.reconsider(ctx, now)
			}
		case <-keep.C:
			x.keep()
		}
	}
}
