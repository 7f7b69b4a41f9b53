package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
)

const (
	// takenMost is how many flows copies are taken for at a time; the kernel half has as much room.
	takenMost = 4096
	// takenFor is how long a flow is kept after the last hello about it.
	takenFor = 5 * time.Second
	// hellosPerSecond are answered of one source, an address or an IPv6 /64: a NAT has many hosts behind it, and each hello lists up to 64 flows.
	hellosPerSecond = 50
	// sourcesMost is how many sources are remembered.
	sourcesMost = 4096
	// leadFor is how long a lead is told after it was measured: the congestion control believes it as long (bpf/fair.h).
	leadFor = 3 * time.Second
	// handover is for how long none may have come from where a flow is taken before another address has it with its first: in the queue of a link that copies have just left, hellos wait
	// for seconds, and would have it back one after the other. Two in a row have it sooner.
	handover = 2 * ackpath.HelloEvery
	// searchEvery is how often sockets are searched for a flow at most, unless that takes more than a twentieth of the time.
	searchEvery = 50 * time.Millisecond
	// reviewEvery is how often the sockets of flows that are taken are looked at again: their congestion control may have changed.
	reviewEvery = 2 * time.Second
	// routeEvery is how often the kernel is asked for the route of a flow, which is work for thousands of them. A lead is told as long, so one that has moved is still measured in time.
	routeEvery = leadFor
	// judgeEvery is how long it takes at the least to see that a flow has no use for copies: hellos about a new one come more often.
	judgeEvery = time.Second / 2
)

// takenFlow is a subflow of this host for which copies of ACKs are taken.
type takenFlow struct {
	key        bpf.FlowKey
	ends       mptcp.Ends
	from       netip.Addr // the hellos, and copies
	next       netip.Addr // another one, of the last hello
	until      time.Time
	interfaces []int // its ACKs and their copies enter by
	route      int   // the interface that it leaves by
	routed     time.Time
	leads      uint32
	measured   time.Time // the last of leads
	copies     uint64    // when rests was set last
	used       uint64
	judged     time.Time
	rests      bool
}

// isResting says whether the socket was given none of the copies that came since the flow was last judged; without any, what was said before.
func (t *takenFlow) isResting(now time.Time, l bpf.AckLead) bool {
	if now.Sub(t.judged) < judgeEvery {
		return t.rests
	}
	if l.Copies != t.copies {
		t.rests = l.Used == t.used
	}
	t.copies, t.used, t.judged = l.Copies, l.Used, now
	return t.rests
}

// lead is what is known of the flow's now, 0 if nothing is: twins that do not come any more, or by another interface, leave the last one in the kernel.
func (t *takenFlow) lead(now time.Time, l bpf.AckLead) uint32 {
	if t.leads != l.Leads {
		t.leads, t.measured = l.Leads, now
	}
	if now.Sub(t.measured) > leadFor {
		return 0
	}
	return l.LeadUs
}

// ackSender is the lever ackpath on a host that sends: it answers hellos. Goroutines: two that listen (ackpath_listen.go), and expire.
type ackSender struct {
	kernel ackKernel
	fair   bool
	logf   func(format string, args ...any)
	// What the host is asked; tests have other answers.
	list func() ([]mptcp.Flow, error)
	find func(mptcp.Flow) (ackLink, error)

	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	sources map[netip.Prefix]*rate.Limiter
	swept   time.Time // the sources
	taken   map[ackpath.Name]*takenFlow
	moved   bool        // interfaces of flows that are taken are others than the kernel was told
	ended   bpf.AckLead // counters of those that are over
	ignored uint64      // hellos
	// What was found when the sockets were searched for the last time.
	searched time.Time
	rested   time.Time // when they may be again
	sockets  map[ackpath.Name][]mptcp.Flow
	peers    map[uint32]map[netip.Addr]bool // addresses of a connection's other end, by token
}

func newAckSender(k ackKernel, fair bool, logf func(string, ...any)) *ackSender {
	return &ackSender{kernel: k, fair: fair, logf: logf, list: mptcp.Flows, find: routeOf,
		sources: map[netip.Prefix]*rate.Limiter{}, taken: map[ackpath.Name]*takenFlow{}}
}

// admits says whether a source may be answered. Of sources that are not remembered because there are too many, none is.
func (s *ackSender) admits(now time.Time, a netip.Addr) bool {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	source, _ := a.Prefix(bits)
	l := s.sources[source]
	if l == nil && len(s.sources) >= sourcesMost && now.Sub(s.swept) > time.Second {
		s.swept = now
		for k, l := range s.sources {
			if l.TokensAt(now) >= hellosPerSecond {
				delete(s.sources, k)
			}
		}
	}
	if l == nil {
		if len(s.sources) >= sourcesMost {
			return false
		}
		l = rate.NewLimiter(hellosPerSecond, hellosPerSecond)
		s.sources[source] = l
	}
	return l.AllowN(now, 1)
}

// search looks at this host's sockets, unless it did lately.
func (s *ackSender) search(now time.Time) {
	if now.Before(s.rested) {
		return
	}
	began := time.Now()
	flows, err := s.list()
	s.searched = now
	s.rested = now.Add(max(searchEvery, 20*time.Since(began)))
	if err != nil {
		s.logf("%v", err)
		return
	}
	s.sockets, s.peers = map[ackpath.Name][]mptcp.Flow{}, map[uint32]map[netip.Addr]bool{}
	for _, f := range flows {
		n := ackpath.Name{Token: f.Token, ID: f.RemoteID, SenderID: f.LocalID}
		s.sockets[n] = append(s.sockets[n], f)
		if s.peers[f.Token] == nil {
			s.peers[f.Token] = map[netip.Addr]bool{}
		}
		s.peers[f.Token][f.Remote.Addr().Unmap()] = true
	}
}

// state says what there is to say of a flow from what was found last. from has the hello: that it is an address of the connection keeps others away.
func (s *ackSender) state(n ackpath.Name, from netip.Addr) ackpath.State {
	found := s.sockets[n]
	switch {
	case len(found) == 0 || !s.peers[n.Token][from]:
		return ackpath.Unknown
	case len(found) > 1:
		return ackpath.Ambiguous
	case found[0].Congestion != bpf.Name:
		return ackpath.Unmanaged
	}
	return ackpath.Known
}

// take takes copies for a flow from now on, or goes on to. link is where the hello came in.
func (s *ackSender) take(now time.Time, n ackpath.Name, from netip.Addr, link int) ackpath.State {
	t := s.taken[n]
	if t == nil || t.from != from || now.Sub(s.searched) > reviewEvery {
		s.search(now)
	}
	switch state := s.state(n, from); {
	case state == ackpath.Unknown && t == nil && s.searched.Before(now): // on a host with many sockets, where looking takes long, it may have come since
		return ackpath.Unasked
	case state != ackpath.Known:
		return state
	}
	f := s.sockets[n][0]
	if t != nil && t.from != from && t.next != from && t.until.Sub(now) > takenFor-handover {
		t.next = from
		return ackpath.Unasked
	}
	if key := flowKey(f.Ends()); t == nil || t.key != key || t.from != from {
		if t != nil {
			s.drop(n, "another subflow has its name now, or hellos come from another address")
		}
		if len(s.taken) >= takenMost {
			return ackpath.Full
		}
		for other, o := range s.taken { // whose own end would be the new one's as well: the kernel knows them by their ends
			if o.key == key {
				s.drop(other, "another connection has its ports now")
			}
		}
		t = &takenFlow{key: key, ends: f.Ends(), from: from}
		if err := s.kernel.take(n, from, key); err != nil {
			s.logf("%v", err)
			return ackpath.Full
		}
		s.taken[n] = t
		s.logf("copies of the ACKs of %v-%v are taken, from %v", t.ends.Local, t.ends.Remote, from)
	}
	interfaces := []int{link}
	if now.Sub(t.routed) >= routeEvery {
		l, _ := s.find(f) // without a route, index 0, the ACKs may enter by that of the hellos
		t.routed, t.route = now, l.index
	}
	if t.route != 0 {
		interfaces = append(interfaces, t.route)
	}
	s.moved = s.moved || !slices.Equal(interfaces, t.interfaces)
	t.until, t.interfaces, t.next = now.Add(takenFor), interfaces, netip.Addr{}
	return ackpath.Known
}

// drop ends the taking of copies for a flow.
func (s *ackSender) drop(n ackpath.Name, because string) {
	t := s.taken[n]
	l, _ := s.kernel.lead(t.key) // what cannot be read is not counted
	s.ended.Copies += l.Copies
	s.ended.Late += l.Late
	if err := s.kernel.drop(n, t.from, t.key); err != nil {
		s.logf("%v", err)
	}
	delete(s.taken, n)
	s.moved = true
	s.logf("copies of the ACKs of %v-%v are taken no more, after %d: %s", t.ends.Local, t.ends.Remote, l.Copies, because)
}

// watch has the kernel look at the interfaces that are of use now. It may take the kernel some time, so it comes after the answer. Of thousands of flows a hello a second
// comes for each, so they are not gone through for every one.
func (s *ackSender) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.moved {
		return
	}
	interfaces := map[int]bool{}
	for _, t := range s.taken {
		for _, i := range t.interfaces {
			interfaces[i] = true
		}
	}
	err := s.kernel.watchHeard(interfaces)
	if s.moved = err != nil; s.moved {
		s.logf("%v", err)
	}
}

// answer answers a hello that came in at a link, or returns nil if it is none, or one too many.
func (s *ackSender) answer(now time.Time, from netip.Addr, link int, b []byte) []byte {
	h, err := ackpath.ParseHello(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !s.admits(now, from) {
		s.ignored++
		return nil
	}
	a := ackpath.Answer{Nonce: h.Nonce, Fair: s.fair}
	for _, n := range h.Flows {
		told := ackpath.Told{Name: n, State: s.take(now, n, from, link)}
		if t := s.taken[n]; t != nil && told.State == ackpath.Known {
			if l, err := s.kernel.lead(t.key); err == nil {
				told.Copies, told.Late, told.LeadUs = uint32(l.Copies), uint32(l.Late), t.lead(now, l)
				if t.isResting(now, l) {
					told.State = ackpath.Resting
				}
			}
		} else if t != nil && t.from == from {
			s.drop(n, told.State.String())
		}
		a.Flows = append(a.Flows, told)
	}
	return a.Append(nil)
}

// expire drops flows of which nothing was heard for long, until ctx ends.
func (s *ackSender) expire(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			for n, t := range s.taken {
				if now.After(t.until) {
					s.drop(n, fmt.Sprintf("no hello for %v", takenFor))
				}
			}
			s.mu.Unlock()
			s.watch()
		}
	}
}

// close ends all, and waits for the goroutines.
func (s *ackSender) close() error {
	s.stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.taken {
		s.drop(n, "the lever ackpath is off")
	}
	return errors.Join(s.kernel.watchHeard(nil))
}
