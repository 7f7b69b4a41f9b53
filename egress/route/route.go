// Package route puts the plan of package egress into the kernel: a routing table for each exit, whose routes encapsulate packets to the exit's SRv6 SID;
// rules that send the packets of the exit's addresses through this table or nowhere; these addresses; and the main table's best paths with their standbys.
//
// Everything it makes has plait's own protocol number, so that a process finds what one before it left, and touches nothing else. What it makes, how to
// see it and how to remove it by hand is in docs/egress/route.md. It makes its netlink messages from attributes: github.com/vishvananda/netlink sends one
// request at a time, and reads neither a rule's action nor who made an address.
//
// The tests need network namespaces:
//
//	sudo PLAIT_TEST=netns scripts/go test ./egress/route
package route

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
)

// Protocol marks what plait made: routes (rtm_protocol), rules (FRA_PROTOCOL) and addresses (IFA_PROTO). No routing daemon has this number, in
// include/uapi/linux/rtnetlink.h or iproute2's rt_protos.
const Protocol = 112

// Numbers of what plait makes. The rules stand before those of VRFs (1000) and of the main table (32766). Metrics: lower is preferred, so that networks the host is
// on (256), routes set by hand (1024) and those of other routing daemons (FRR: 20) go first where both are.
const (
	LookupPriority      = 500
	UnreachablePriority = 501
	Metric              = 4112
	StandbyMetric       = 4113
)

// Config is what the routes are made with.
type Config struct {
	Exits []egress.Exit
	// Interface gets the exits' addresses, and encapsulated packets name it. Where they really leave, the main table decides by the SID.
	Interface string
	// TunnelSource is the address of this host that encapsulated packets come from. It must be no exit's: they would match its rule again.
	TunnelSource netip.Addr
	// Memory is a file that outlives this process, not this boot, for the tunnel source that was there before; without it a crash forgets that.
	Memory string
	// Journal is told of every change, done or tried.
	Journal func(Step)
}

// Kernel is the routing state of the network namespace in which it was opened. It is for one goroutine at a time.
type Kernel struct {
	config Config
	route  *socket
	tunsrc *tunsrc
	watch  *watch
	memory memory
	link   uint32             // the interface
	hops   map[netip.Addr]hop // ways to next hops, as they were when last found, or not
	// covered are those that a route of plait's own led to when last looked at.
	covered map[netip.Addr]bool
	// nexthops are the objects there are, with their identifiers.
	nexthops map[way]uint32
	served   map[way]int // how many entries lead to each
	// others are the identifiers of next hops that are not plait's, as far as they are in the way.
	others map[uint32]bool
	// rules and addresses are what there should be.
	rules     map[kernelRule]bool
	addresses map[kernelAddress]bool
	unmade    map[way]*unmade // next hops that routes cannot be made with, in the call under way
	waited    time.Duration   // for memory for them, in that call
	theirs    []theirRoute    // of the main table, in the call under way, if somebody asked
	left      map[object]bool // rules and addresses that somebody else made and that serve as well: it was told
	taken     map[place]bool  // somebody else's route was where one of plait's should be
	many      int             // routes of plait's there were when last looked
	lacking   bool            // the interface, the tunnel source or the way to a next hop was missing, or a step failed
}

// Open changes nothing yet. Without exits it is for Remove alone.
func Open(c Config) (*Kernel, error) {
	if err := egress.CheckExits(c.Exits); err != nil {
		return nil, err
	}
	if len(c.Exits) > 0 && (!c.TunnelSource.Is6() || c.TunnelSource.Is4In6() || !c.TunnelSource.IsGlobalUnicast()) {
		return nil, fmt.Errorf("use tunnel source %v: it is no IPv6 unicast address; give one of this host", c.TunnelSource)
	}
	for _, e := range c.Exits {
		if slices.Contains(e.Addresses, c.TunnelSource) {
			return nil, fmt.Errorf("use tunnel source %v: it is an address of exit %s, whose rule would catch the encapsulated packets again; give another one", c.TunnelSource, e.Name)
		}
	}
	k := &Kernel{config: c, left: map[object]bool{}, taken: map[place]bool{}, lacking: true}
	var err error
	if k.tunsrc, err = openTunsrc(); err != nil {
		return nil, err
	}
	if k.route, err = dial(); err != nil {
		k.tunsrc.Close()
		return nil, err
	}
	if k.watch, err = openWatch(k.route.PID()); err != nil {
		k.route.Close()
		k.tunsrc.Close()
		return nil, err
	}
	return k, nil
}

// Close leaves in the kernel what is there.
func (k *Kernel) Close() {
	k.watch.close()
	k.route.Close()
	k.tunsrc.Close()
}

// placeFor says where the kernel has an entry.
func placeFor(e *egress.Entry) place {
	switch {
	case e.Table != 0:
		return placeOf(e.Table, e.Prefix, Metric)
	case e.Standby:
		return placeOf(unix.RT_TABLE_MAIN, e.Prefix, StandbyMetric)
	}
	return placeOf(unix.RT_TABLE_MAIN, e.Prefix, Metric)
}

// ErrUncompared is returned by Apply as long as no Reconcile could find what the kernel has; what keeps it from that is in its own error.
var ErrUncompared = errors.New("apply changes: Reconcile comes first, to know what the kernel has")

// Apply does the plan's changes in their order; routes that go because nothing leads to their new next hops go last, like others, shortest prefix first. After an
// error, Reconcile.
func (k *Kernel) Apply(changes []egress.Change) error {
	if k.hops == nil {
		return ErrUncompared
	}
	var f failures
	var requests, gone []request
	k.unmade, k.waited = map[way]*unmade{}, 0
	defer func() { k.theirs = nil }()
	for _, c := range changes {
		k.leads(c.Old, -1)
		k.leads(c.New, 1)
		r, reason, err := request{}, "", error(nil)
		var to kernelRoute
		if c.New != nil {
			if to, err = k.wanted(c.New); err != nil {
				reason = "nothing leads to its new next hop"
			}
		}
		switch {
		case c.New != nil && err == nil && c.Old == nil:
			r = request{Add, to, "announced"}
		case c.New != nil && err == nil:
			verb := Replace
			if k.taken[to.place] { // the kernel would replace whosever is there
				verb = Add
			}
			r = request{verb, to, fmt.Sprintf("a better route, or another SID or next hop; was %v%v", shown(c.Old.SID), shown(c.Old.NextHop))}
		case c.Old != nil:
			gone = append(gone, request{Delete, kernelRoute{place: placeFor(c.Old), sid: c.Old.SID, gateway: c.Old.NextHop}, cmp.Or(reason, "withdrawn")})
			continue
		default:
			continue
		}
		requests = append(requests, r)
	}
	k.tellUnmade(&f)
	slices.SortStableFunc(gone, func(a, b request) int { return int(a.object.(kernelRoute).bits) - int(b.object.(kernelRoute).bits) })
	f.add(k.carry(append(requests, gone...)))
	f.add(k.tidy())
	return f.err()
}

func shown(a netip.Addr) string {
	if a.IsValid() {
		return a.String()
	}
	return ""
}

// Reconcile makes the kernel's state what the configuration and the entries say, whatever it was, and finds the ways to next hops anew. It is to be called
// first, after errors, and whenever somebody else may have changed something: links that went down take routes along, other daemons tidy up. When
// nothing is wrong it changes nothing.
func (k *Kernel) Reconcile(entries iter.Seq[egress.Entry]) error {
	k.lacking = true
	have, err := k.read()
	if err != nil {
		return err
	}
	link, err := k.findLink(k.config.Interface)
	if err == nil {
		err = k.takeTunsrc()
	}
	if err != nil {
		clear(k.hops) // that they strayed is no reason to try this again
		return errors.Join(err, k.bind(have))
	}
	k.link, k.hops, k.nexthops, k.unmade, k.waited, k.taken = link, map[netip.Addr]hop{}, have.nexthops, map[way]*unmade{}, 0, map[place]bool{}
	k.lacking = false
	defer func() { k.theirs = nil }()
	var f failures
	k.rules, k.addresses = k.ends(have.rules, &f)
	k.reconcile(have, func(q *queue) { q.routes(have.routes, entries) }, &f)
	return f.err()
}

// bind keeps packets of the exits' addresses that there are from the main table, where nothing else can be made right.
func (k *Kernel) bind(have state) error {
	want := map[kernelRule]bool{}
	for a := range have.addresses {
		if slices.ContainsFunc(k.config.Exits, func(e egress.Exit) bool { return slices.Contains(e.Addresses, a.address) }) {
			want[kernelRule{source: a.address, priority: UnreachablePriority, unreachable: true}] = true
		}
	}
	var f failures
	q := &queue{k: k, f: &f}
	q.missingRules(have.rules, want, true)
	q.flush()
	return f.err()
}

// Addresses lists those of exits that there are, whichever process made them.
func (k *Kernel) Addresses() (all []netip.Addr, err error) {
	have, err := k.readEnds()
	for _, a := range sortedAddresses(have.addresses) {
		all = append(all, a.address)
	}
	return all, err
}

// Remove takes back everything of plait's, whichever process made it.
func (k *Kernel) Remove() error {
	have, err := k.read()
	if err != nil {
		return err
	}
	k.nexthops, k.rules, k.addresses, k.unmade = have.nexthops, nil, nil, nil // what could not be made is not wanted any more
	var f failures
	k.reconcile(have, func(q *queue) { q.routes(have.routes, func(func(egress.Entry) bool) {}) }, &f)
	f.add(k.giveTunsrc())
	return f.err()
}

// ends lists the rules and addresses there should be. Someone else's routes in an exit's table could lead its packets anywhere, so without its lookup rule
// its packets are unreachable until they are gone. Where the kernel does not say whether there are any, as for want of memory, a rule that is there stays.
func (k *Kernel) ends(have map[kernelRule]bool, f *failures) (rules map[kernelRule]bool, addresses map[kernelAddress]bool) {
	rules, addresses = map[kernelRule]bool{}, map[kernelAddress]bool{}
	for _, e := range k.config.Exits {
		theirs, err := k.foreign(e.Table)
		unknown := err != nil
		for protocol, example := range theirs {
			err = fmt.Errorf("use table %d for exit %s: it holds routes of others, as %v of protocol %d; packets of the exit are unreachable until they are gone or the exit has another table",
				e.Table, e.Name, example, protocol)
		}
		if err != nil {
			f.add(k.note(Step{Verb: Leave, Object: text(fmt.Sprint("table ", e.Table)), Err: err}))
		}
		for _, a := range e.Addresses {
			rules[kernelRule{source: a, priority: UnreachablePriority, unreachable: true}] = true
			if lookup := (kernelRule{source: a, priority: LookupPriority, table: e.Table}); err == nil || unknown && have[lookup] {
				rules[lookup] = true
			}
			addresses[kernelAddress{address: a, link: k.link}] = true
		}
	}
	return rules, addresses
}
