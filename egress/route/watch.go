package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// eventBuffer is the kernel's room for events not yet read, some 10,000. When it is full everything is compared.
	eventBuffer = 8 << 20
	// mostLost is how many routes are remembered one by one; more are many enough to compare everything.
	mostLost = 10_000
	// pause is between two repairs, at least; and idle is how many times as long as the last one took. So what goes wrong all the time costs a quarter of it.
	pause = 100 * time.Millisecond
	idle  = 3
)

// losses is what happened in the kernel since the last repair and may have cost plait something.
type losses struct {
	unknown bool            // events were lost
	ends    bool            // a rule, an address or a next hop of plait's was taken away
	routes  map[place]bool  // so were these
	links   map[uint32]bool // they are up again, with a carrier: the kernel had dropped their next hops, and says nothing of it
	news    bool            // the host has another address, or one that can be used now
	// addresses came to these links or went from them: with the last IPv4 address of a network the kernel drops the routes over it, and says nothing of it
	addressed map[uint32]bool
}

func (l *losses) none() bool {
	return !l.unknown && !l.ends && !l.news && len(l.routes) == 0 && len(l.links) == 0 && len(l.addressed) == 0
}

// watch hears what others do to the kernel's routing state. Goroutine: run.
type watch struct {
	conn  *netlink.Conn
	lost  chan struct{} // has one when there is something to repair
	ended chan struct{} // closed when run has

	mu      sync.Mutex // guards what follows
	losses  losses
	usable  map[uint32]bool        // links, as their last event says
	held    map[kernelAddress]bool // addresses of others that came: the kernel tells of one again whenever its lifetime is extended
	busy    bool                   // a repair is under way
	armed   bool                   // lost gets one soon
	next    time.Time              // the next repair begins no sooner
	closing bool
}

func newWatch() *watch {
	return &watch{lost: make(chan struct{}, 1), ended: make(chan struct{}), usable: map[uint32]bool{}, held: map[kernelAddress]bool{}}
}

// openWatch subscribes. The socket with the port own is plait's: what it does is no event.
func openWatch(own uint32) (*watch, error) {
	w := newWatch()
	var err error
	if w.conn, err = netlink.Dial(unix.NETLINK_ROUTE, nil); err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	filter, err := bpf.Assemble(heard(own))
	err = errors.Join(err, w.conn.SetBPF(filter), w.conn.SetReadBuffer(eventBuffer))
	for _, group := range []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE} {
		err = errors.Join(err, w.conn.JoinGroup(group))
	}
	if err != nil {
		w.conn.Close()
		return nil, fmt.Errorf("subscribe to the kernel's routing events: %w", err)
	}
	go w.run()
	return w, nil
}

// heard is the filter of events, carried out in the kernel: a million routes of plait's or of a BGP daemon would not fit into any buffer. Of routes it
// leaves those of plait's that a process deleted. What the kernel deletes by itself (port 0) goes with a link or a next hop, and these have events.
func heard(own uint32) []bpf.Instruction {
	const kind, port, routeProtocol = 4, 12, unix.NLMSG_HDRLEN + 5                                          // in struct nlmsghdr and, behind it, struct rtmsg
	swap16 := func(v uint16) uint32 { return uint32(binary.BigEndian.Uint16(native.AppendUint16(nil, v))) } // BPF reads as the network does
	swap32 := func(v uint32) uint32 { return binary.BigEndian.Uint32(native.AppendUint32(nil, v)) }
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: port, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: swap32(own), SkipTrue: 10},
		bpf.TAX{},
		bpf.LoadAbsolute{Off: kind, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: swap16(unix.RTM_NEWROUTE), SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: swap16(unix.RTM_NEWNEXTHOP), SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: swap16(unix.RTM_DELROUTE), SkipTrue: 4},
		bpf.TXA{},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
		bpf.LoadAbsolute{Off: routeProtocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: Protocol, SkipTrue: 1},
		bpf.RetConstant{Val: ^uint32(0)},
		bpf.RetConstant{Val: 0},
	}
}

func (w *watch) close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.conn.Close()
	<-w.ended
}

// takeLink keeps a struct ifinfomsg. A link counts as back when it has both what next hops need, and did not by the event before.
func (w *watch) takeLink(b []byte) {
	if len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_UNSPEC { // others are of bridges, about their ports
		return
	}
	const needed = unix.IFF_UP | unix.IFF_LOWER_UP
	link, usable := native.Uint32(b[4:]), native.Uint32(b[8:])&needed == needed
	if usable && !w.usable[link] {
		if w.losses.links == nil {
			w.losses.links = map[uint32]bool{}
		}
		w.losses.links[link] = true
	}
	w.usable[link] = usable
}

// takeAddress keeps that an address came or went.
func (w *watch) takeAddress(b []byte, came bool) {
	a, present, ours := readAddress(b)
	switch {
	case !present:
		return
	case ours:
		w.losses.ends = w.losses.ends || !came
		return
	case came:
		w.losses.news = true
		if w.held[a] {
			return
		}
		w.held[a] = true
	default:
		delete(w.held, a)
	}
	if w.losses.addressed == nil {
		w.losses.addressed = map[uint32]bool{}
	}
	w.losses.addressed[a.link] = true
}

// takeRoute keeps a route that was deleted.
func (w *watch) takeRoute(b []byte) {
	r, _, ok := readRoute(b)
	if !ok {
		return
	}
	if w.losses.routes == nil {
		w.losses.routes = map[place]bool{}
	}
	w.losses.routes[r.place] = true
	if len(w.losses.routes) > mostLost {
		w.losses.unknown, w.losses.routes = true, nil
	}
}

// take keeps what an event says. The caller has w.mu.
func (w *watch) take(m netlink.Message) {
	ours := false
	switch uint16(m.Header.Type) {
	case unix.RTM_NEWLINK:
		w.takeLink(m.Data)
	case unix.RTM_DELLINK:
		if len(m.Data) >= unix.SizeofIfInfomsg && m.Data[0] == unix.AF_UNSPEC {
			delete(w.usable, native.Uint32(m.Data[4:]))
		}
	case unix.RTM_DELROUTE:
		w.takeRoute(m.Data)
	case unix.RTM_DELNEXTHOP:
		_, _, ours = readNexthop(m.Data)
	case unix.RTM_DELRULE:
		_, _, ours = readRule(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		w.takeAddress(m.Data, m.Header.Type == unix.RTM_NEWADDR)
	}
	w.losses.ends = w.losses.ends || ours
}

// tell sees to it that lost has one when a repair may begin. The caller has w.mu.
func (w *watch) tell() {
	if w.busy || w.armed || w.losses.none() {
		return
	}
	w.armed = true
	time.AfterFunc(time.Until(w.next), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.armed = false
		switch {
		case w.busy || w.losses.none(): // a repair began between the time and this
		case time.Until(w.next) > 0: // and ended
			w.tell()
		default:
			select {
			case w.lost <- struct{}{}:
			default:
			}
		}
	})
}

// begin begins a repair of what it returns.
func (w *watch) begin() losses {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.lost: // it is of what is repaired now
	default:
	}
	l := w.losses
	w.losses, w.busy = losses{}, true
	return l
}

func (w *watch) end(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.next = false, time.Now().Add(max(pause, idle*time.Since(began)))
	w.tell()
}

func (w *watch) run() {
	defer close(w.ended)
	for {
		events, err := w.conn.Receive()
		w.mu.Lock()
		if w.closing {
			w.mu.Unlock()
			return
		}
		w.losses.unknown = w.losses.unknown || err != nil // the kernel had more events than room for them
		for _, m := range events {
			w.take(m)
		}
		w.tell()
		w.mu.Unlock()
	}
}
