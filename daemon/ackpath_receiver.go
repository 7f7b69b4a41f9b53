package daemon

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

const (
	// ackLookEvery is how often the receiver looks for subflows. Where that takes more than a fiftieth of the time it is less often, down to the time between hellos.
	ackLookEvery = 200 * time.Millisecond
	// A subflow is new for newFor, and the sender is asked about it again after askAgain: what it has not taken yet it may have then.
	newFor   = time.Second
	askAgain = 50 * time.Millisecond
	// idleAfter is when a connection that receives nothing is left alone, and how long a way that nobody uses is kept, so that its round trip is known when the next
	// connection begins.
	idleAfter = time.Minute
	// unlistedFor is how long what was listed last counts, where subflows cannot be listed.
	unlistedFor = 3 * time.Second
)

// ackReceiver is the lever ackpath on a host that receives. Goroutines: run, heed, and one for each socket of hellos.
type ackReceiver struct {
	kernel ackKernel
	port   uint16
	logf   func(format string, args ...any)
	// What the host is asked; tests have other answers.
	list func() ([]mptcp.Flow, error)
	wait func(stop <-chan struct{}, joined func()) error
	find func(mptcp.Flow) (ackLink, error)
	open func(ackLink) (*net.UDPConn, error)
	// When a hello is sent; tests have another clock.
	clock func() time.Time

	stop    chan struct{}
	news    chan struct{} // something was answered that a decision waits for
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	mode    Mode
	ratio   float64
	trouble string // the last one, so that it is told once
	// What list has said last, and when.
	listed   []mptcp.Flow
	listedAt time.Time
	sockets  map[helloKey]*net.UDPConn
	ways     map[wayKey]*ackWay
	flows    map[bpf.FlowKey]*ackFlow
	ended    uint64 // copies of flows that are over
}

func newAckReceiver(k ackKernel, port uint16, logf func(string, ...any)) *ackReceiver {
	return &ackReceiver{kernel: k, port: port, logf: logf, list: mptcp.Flows, wait: mptcp.Joins, find: linkOf, open: openHello, clock: time.Now,
		stop: make(chan struct{}), news: make(chan struct{}, 1), mode: Off,
		sockets: map[helloKey]*net.UDPConn{}, ways: map[wayKey]*ackWay{}, flows: map[bpf.FlowKey]*ackFlow{}}
}

func flowKey(e mptcp.Ends) bpf.FlowKey {
	return bpf.FlowKey{Local: e.Local.Addr().As16(), Remote: e.Remote.Addr().As16(), LocalPort: e.Local.Port(), RemotePort: e.Remote.Port()}
}

// say tells of a trouble, once for as long as it lasts. The caller has r.mu.
func (r *ackReceiver) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.trouble && text != "" {
		r.logf("%s", text)
	}
	r.trouble = text
}

// placed is a subflow with its way to the sender, or why none is known.
type placed struct {
	mptcp.Flow
	*placement
	way wayKey
}

type placement struct {
	link  ackLink
	lacks error
}

// way finds or makes a way. The caller has r.mu.
func (r *ackReceiver) way(now time.Time, l ackLink, server netip.Addr) wayKey {
	k := wayKey{helloKey{l.source, l.index}, server}
	w := r.ways[k]
	if w == nil {
		w = &ackWay{}
		r.ways[k] = w
	}
	w.link, w.used = l, now
	return k
}

// place finds the links of the subflows of connections that received something lately, and returns the connections with more than one. One that is not found is another.
func (r *ackReceiver) place(now time.Time, flows []mptcp.Flow) map[uint32][]placed {
	type route struct {
		ends  [2]netip.Addr
		bound uint32
	}
	type about struct {
		subflows int
		receives bool
	}
	leave := func(f mptcp.Flow, why string) {
		if known := r.flows[flowKey(f.Ends())]; known != nil {
			known.left = why
		}
	}
	const alone = "the connection has no other link"
	links, connections := map[route]*placement{}, map[uint32][]placed{}
	known, several := map[uint32]about{}, map[uint32]bool{}
	for _, f := range flows {
		a := known[f.Token]
		known[f.Token] = about{a.subflows + 1, a.receives || f.Quiet < idleAfter}
	}
	for _, f := range flows {
		if a := known[f.Token]; a.subflows < 2 {
			leave(f, alone)
			continue
		} else if !a.receives {
			leave(f, fmt.Sprintf("nothing has been received for %v", idleAfter))
			continue
		}
		e := f.Ends()
		k := route{[2]netip.Addr{e.Local.Addr(), e.Remote.Addr()}, f.Interface}
		l := links[k]
		if l == nil {
			l = &placement{}
			l.link, l.lacks = r.find(f)
			links[k] = l
		}
		others := connections[f.Token]
		several[f.Token] = several[f.Token] || l.lacks != nil || len(others) > 0 && others[0].link.index != l.link.index
		connections[f.Token] = append(others, placed{Flow: f, placement: l})
	}
	for token, all := range connections {
		if !several[token] {
			for _, p := range all {
				leave(p.Flow, alone)
			}
			delete(connections, token)
			continue
		}
		for i, p := range all {
			if p.lacks == nil {
				all[i].way = r.way(now, p.link, p.Ends().Remote.Addr())
			}
		}
	}
	return connections
}

// quickest picks the way whose link is another and whose round trip is the shortest. One that is in use is kept; one on which copies of the flow pause gives way to any other
// that is quicker than the flow's own.
func (r *ackReceiver) quickest(now time.Time, f *ackFlow, all []placed) wayKey {
	var best, free wayKey
	quicker := func(k, than wayKey) bool {
		w, t := r.ways[k], r.ways[than]
		return t == nil || w.RTT() > 0 && (t.RTT() == 0 || w.RTT() < t.RTT())
	}
	for _, p := range all {
		if p.lacks != nil || p.way.link == f.slow.link {
			continue
		}
		if f.copied != nil && p.way == f.quick {
			return p.way
		}
		if quicker(p.way, best) {
			best = p.way
		}
		if policy := f.policies[p.way]; (policy == nil || !policy.Pauses(now)) && quicker(p.way, f.slow) && quicker(p.way, free) {
			free = p.way
		}
	}
	return cmp.Or(free, best)
}

// decide has the policy decide for each subflow of a connection.
func (r *ackReceiver) decide(now time.Time, all []placed) {
	var token uint32
	for _, p := range all {
		token = max(token, p.RemoteToken) // of the subflows that joined; all that have one have the same
	}
	for _, p := range all {
		ends := p.Ends()
		key := flowKey(ends)
		f := r.flows[key]
		if f == nil {
			f = &ackFlow{policies: map[wayKey]*ackpath.Flow{}, ends: ends, began: now}
			r.flows[key] = f
		}
		f.seen, f.left, f.slow, f.name = now, "", p.way, ackpath.Name{Token: token, ID: p.LocalID, SenderID: p.RemoteID}
		if p.lacks != nil {
			f.over(wayKey{})
			f.decision = ackpath.Decision{Because: p.lacks.Error()}
			continue
		}
		f.over(r.quickest(now, f, all))
		slow, quick := r.ways[f.slow], r.ways[f.quick]
		if quick == nil {
			f.decision = ackpath.Decision{Because: "no other link of the connection is known"}
			continue
		}
		if token == 0 {
			f.decision = ackpath.Decision{Because: "the sender's name for the connection is not known: the other host opened its subflows"}
			continue
		}
		if f.copied != nil {
			f.sent = r.kernel.copies(key)
		}
		policy := f.policies[f.quick]
		if policy == nil {
			policy = &ackpath.Flow{}
			f.policies[f.quick] = policy
		}
		f.decision = policy.Decide(now, r.ratio, ackpath.Facts{Slow: &slow.Way, Quick: &quick.Way, Handshake: p.MinRTT, New: f.isNew(now), SlowLink: slow.link.name, QuickLink: quick.link.name,
			Answer: f.answers, Told: f.told, Sent: f.sent, Receives: p.Quiet < ackpath.HelloEvery, Observe: r.mode != On})
		if !f.decision.Ask {
			f.asked = time.Time{}
		}
	}
}

// act makes the kernel do what was decided.
func (r *ackReceiver) act(now time.Time) error {
	watched := map[int]bool{}
	var problem error // the first: one flow's trouble is not to keep another's copies from ending
	for key, f := range r.flows {
		if !f.decision.Copy || r.mode != On {
			because := f.decision.Because
			if r.mode != On {
				because = "the mode is observe"
			}
			copied := f.copied != nil
			problem = cmp.Or(problem, r.end(key, f, because))
			if copied && r.mode != On { // the sender, which is not asked meanwhile, may say something else by the time the mode is on again
				f.policies, f.decision = map[wayKey]*ackpath.Flow{}, ackpath.Decision{Because: because}
				f.unask()
			}
			continue
		}
		w, socket := r.ways[f.quick], r.sockets[f.quick.helloKey]
		to := bpf.AckRoute{Source: f.quick.source.As16(), Destination: f.quick.server.As16(), NextHop: w.link.nextHop.As16(), Ifindex: uint32(f.quick.link), Slow: uint32(f.slow.link),
			Token: f.name.Token, Id: f.name.ID, SenderId: f.name.SenderID, SourcePort: socket.LocalAddr().(*net.UDPAddr).AddrPort().Port(), DestinationPort: r.port}
		if f.decision.Rest {
			to.Rests = 1
		}
		if f.copied != nil && *f.copied == to {
			watched[f.slow.link] = true
			continue
		}
		if err := r.kernel.copyTo(key, to); err != nil {
			problem = cmp.Or(problem, err)
			f.decision = f.policies[f.quick].Stop(now, err.Error())
			continue
		}
		watched[f.slow.link] = true
		if f.copied == nil {
			f.earlier, f.sent, f.since = f.earlier+f.sent, 0, now
			r.logf("copy the ACKs of %v-%v, which come over %s, over %s: %s", f.ends.Local, f.ends.Remote, r.ways[f.slow].link.name, w.link.name, f.decision.Because)
		}
		f.copied = &to
	}
	return cmp.Or(problem, r.kernel.watchSent(watched))
}

// end ends the copies of a flow, if there are any.
func (r *ackReceiver) end(key bpf.FlowKey, f *ackFlow, because string) error {
	if f.copied == nil {
		return nil
	}
	f.sent = r.kernel.copies(key)
	if err := r.kernel.stopCopying(key); err != nil {
		return err
	}
	r.logf("ACKs of %v-%v are copied no more, after %d: %s", f.ends.Local, f.ends.Remote, f.sent, because)
	f.copied, f.since = nil, time.Time{}
	return nil
}

// forget removes what is not there any more.
func (r *ackReceiver) forget(now time.Time) error {
	var problem error
	for key, f := range r.flows {
		if f.seen.Equal(now) {
			continue
		}
		if err := r.end(key, f, cmp.Or(f.left, "the subflow has ended")); err != nil {
			problem, f.decision = cmp.Or(problem, err), ackpath.Decision{Because: "it could not be ended"} // at the next look
			continue
		}
		r.ended += f.earlier + f.sent
		delete(r.flows, key)
	}
	used := map[helloKey]bool{}
	for k, w := range r.ways {
		if now.Sub(w.used) > idleAfter {
			delete(r.ways, k)
			continue
		}
		used[k.helloKey] = true
	}
	for k, c := range r.sockets {
		if !used[k] {
			c.Close()
			delete(r.sockets, k)
		}
	}
	return problem
}

// look is what happens a few times a second, and when a sender has answered.
func (r *ackReceiver) look(now time.Time) {
	flows, err := r.list()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mode == Off {
		return
	}
	if err == nil {
		r.listed, r.listedAt = flows, now
	} else if flows = r.listed; now.Sub(r.listedAt) > unlistedFor {
		flows = nil // or the kernel would copy for good
	}
	for _, all := range r.place(now, flows) {
		r.decide(now, all)
	}
	err = cmp.Or(err, r.forget(now), r.act(now))
	r.greet(now)
	r.say(err)
}

// wake says that there is something to look at.
func (r *ackReceiver) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// heed wakes run when a subflow is there; without events, the next look finds it.
func (r *ackReceiver) heed() {
	if err := r.wait(r.stop, r.wake); err != nil {
		r.logf("%v; subflows are found up to %v later", err, ackLookEvery)
	}
}

// waits says whether there is a new flow that the sender has not agreed to.
func (r *ackReceiver) waits(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flows {
		if f.decision.Ask && !f.decision.Copy && f.isNew(now) {
			return true
		}
	}
	return false
}

// run looks until stop is closed. News are looked at sooner, but not all the time either.
func (r *ackReceiver) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rested time.Time
	for {
		select {
		case <-r.stop:
			return
		case <-r.news:
			timer.Reset(time.Until(rested))
		case <-timer.C:
			began := time.Now()
			r.look(began)
			took := time.Since(began)
			rested = time.Now().Add(10 * took)
			every := ackLookEvery
			if r.waits(began) {
				every = askAgain
			}
			timer.Reset(min(max(every, 50*took), ackpath.HelloEvery))
		}
	}
}
