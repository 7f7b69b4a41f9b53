package stripe

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// stagger is how long a pair may take to get its path before another one is tried beside it (RFC 8305 has 250 ms).
	stagger = 250 * time.Millisecond
	// rivalAfter is how long a path may be silent before a new connection is tried beside it. TCP alone would try again later and
	// later: after a minute of silence it takes up to a minute to notice that the link is back.
	rivalAfter = 500 * time.Millisecond
	// slowTries is how often a pair that does not answer in time is tried, each time for longer, before there is no hope for it: a link may need seconds for the three
	// round trips, behind a full queue or over a satellite.
	slowTries = 2
	// pauseMax is what the pauses between attempts grow to while a pair has never worked.
	pauseMax = 30 * time.Second
	// pauseKnown is the same if both links have had paths, if not with each other: one of them may be back.
	pauseKnown = 2 * time.Second
	// pauseAgain is the pause after a failure on a pair that has worked.
	pauseAgain = 200 * time.Millisecond
)

// dialer keeps a session's paths, between the links of this host and those of the listener.
type dialer struct {
	c     *Conn
	cfg   *Config
	tls   *tls.Config
	hosts []Peer // as Dial was told
	lists int    // the listener has sent; of the session's lock

	changed signal
	mu      sync.Mutex
	told    []Peer // by the listener
	listed  int    // the list that told is of
	created bool   // the listener knows the session
	paths   uint32 // numbers given
	targets map[pair]*target
	had     map[pair]*path    // the last path of each pair that has worked
	wanted  map[string]bool   // links that are named, or have had a path
	missing map[string]string // those that cannot be tried, and why
	absent  map[string]string // why interfaces are not among the links, as those were listed; runPairs'

	heard      map[string]bool   // links the listener has told of
	farNames   map[string]string // the listener's name of a link, by the one it has in pairs
	farMissing map[string]string // links of the listener that cannot be tried, and why
}

// target is a pair that is to have a path.
type target struct {
	cancel context.CancelFunc
	tries  []try
	since  time.Time // when it was begun, or failed after having worked
	path   *path     // the last one
	works  bool
	failed int  // attempts, since it worked
	small  bool // larger packets may be lost
	err    error
	retry  signal
}

// Dial connects to a listener at host:port, of which there may be several: its addresses on all its links, or some of them; it tells
// the others itself. What one name leads to counts as one link: give those of several one by one. Dial returns as soon as there is one path; the others follow, and paths are made and dropped as links come
// and go until the connection is closed. ctx is for Dial only.
func Dial(ctx context.Context, cfg *Config, addrs ...string) (*Conn, error) {
	peers, err := resolve(ctx, addrs)
	if err != nil {
		return nil, err
	}
	return dial(ctx, cfg, reachable(peers))
}

// DialPeers is Dial with what [Listener.Peers] told, and one link more, such as a NAT's. What is beyond that, or 4 addresses of a link, is left out: the peer may have made it up.
func DialPeers(ctx context.Context, cfg *Config, peers []Peer) (*Conn, error) {
	return dial(ctx, cfg, bounded(peers, maxPeers+1))
}

func dial(ctx context.Context, cfg *Config, peers []Peer) (*Conn, error) {
	conf, err := cfg.check()
	if err != nil {
		return nil, err
	}
	d := &dialer{cfg: cfg, tls: conf, hosts: peers, changed: newSignal(), targets: map[pair]*target{}, had: map[pair]*path{}, wanted: map[string]bool{}, missing: map[string]string{}, heard: map[string]bool{}}
	for name := range cfg.Links {
		d.wanted[name] = true
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	d.c = newConn(id, PublicKey{}, cfg)
	d.c.hear = d.hear
	d.c.failures = d.failures
	first, stopped := make(chan error, 1), make(chan struct{})
	run, cancel := context.WithCancel(context.Background())
	d.c.onFinish = cancel
	go d.c.runWatch()
	go func() { defer close(stopped); d.runPairs(run, first) }()
	select {
	case err = <-first:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), d.errors())
	}
	if err != nil {
		d.c.finish(net.ErrClosed, "")
		<-stopped
		return nil, fmt.Errorf("stripe: no path to the peer:\n%w", err)
	}
	return d.c, nil
}

// resolve makes a peer's link of each address.
func resolve(ctx context.Context, addrs []string) ([]Peer, error) {
	if len(addrs) == 0 {
		return nil, errors.New("stripe: dial: no address; give host:port")
	}
	var out []Peer
	for i, a := range addrs {
		host, service, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w; give host:port", a, err)
		}
		port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w", a, err)
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("stripe: dial %q: %w", a, err)
		}
		p := Peer{Link: host}
		switch {
		case slices.Contains(addrs[:i], a):
			continue
		case slices.ContainsFunc(out, func(q Peer) bool { return q.Link == host }):
			p.Link = a // another port of a NAT's, to another link
		}
		for _, ip := range ips {
			p.Addrs = append(p.Addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
		out = append(out, p)
	}
	return out, nil
}

// reachable leaves out links without an address, and those whose names a listener would not take in a hello.
func reachable(peers []Peer) []Peer {
	invalid := func(a netip.AddrPort) bool { return !a.IsValid() }
	return slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool {
		return len(p.Addrs) == 0 || slices.ContainsFunc(p.Addrs, invalid) || len(p.Link) > maxName
	})
}

// bounded leaves out what a listener has no reason to tell, too: each pair of links costs something, whether it can have a path or not.
func bounded(peers []Peer, most int) []Peer {
	peers = reachable(peers)
	peers = peers[:min(len(peers), most)]
	for i := range peers {
		peers[i].Addrs = peers[i].Addrs[:min(len(peers[i].Addrs), maxPeerAddrs)]
	}
	return peers
}

// hear takes the listener's list of its links. It is called with the session locked.
func (d *dialer) hear(peers []Peer) {
	peers = bounded(peers, maxPeers)
	d.lists++
	n := d.lists
	go func() {
		d.mu.Lock()
		if n > d.listed { // the last list may be the first to come here
			d.told, d.listed = peers, n
		}
		for _, p := range peers {
			if len(d.heard) < maxPaths {
				d.heard[p.Link] = true
			}
		}
		d.mu.Unlock()
		d.changed.signal()
	}()
}

// peers are the listener's links, as Dial was told and as it tells itself. A link keeps the name it had first; what only Dial was
// told stays: the address of a NAT, for instance.
func (d *dialer) peers() []Peer {
	out := slices.Clone(d.hosts)
	for _, p := range d.told {
		i := p.among(out)
		if i < 0 {
			out = append(out, p)
			continue
		}
		out[i].Policy = p.Policy
		out[i].Addrs = append(slices.Clone(p.Addrs), slices.DeleteFunc(slices.Clone(out[i].Addrs), func(a netip.AddrPort) bool { return slices.Contains(p.Addrs, a) })...)
	}
	return out
}

// among finds the same link in a list: by name, or an address.
func (p Peer) among(list []Peer) int {
	return slices.IndexFunc(list, func(q Peer) bool {
		return q.Link == p.Link || slices.ContainsFunc(q.Addrs, func(a netip.AddrPort) bool { return slices.Contains(p.Addrs, a) })
	})
}

// relistEvery is how often links are listed without an event, in case one was lost.
const relistEvery = 10 * time.Second

// runPairs has a goroutine for each pair that is to have a path, until the session ends. first hears of the first path, or that
// there is no hope of one.
func (d *dialer) runPairs(ctx context.Context, first chan<- error) {
	events := watchLinks(ctx)
	tick := time.NewTicker(stagger)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	var links []Link
	var listed time.Time
	for {
		var err error
		if time.Since(listed) >= relistEvery {
			var now []Link
			if now, err = d.cfg.links(); err == nil {
				links, listed, d.absent = now, time.Now(), nil
			}
		}
		d.update(ctx, links, &running)
		if created, hopeless := d.state(); created || err != nil || hopeless {
			if err == nil && !created {
				err = cmp.Or(d.errors(), errNoFamily)
			}
			select {
			case first <- err:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-events:
			listed = time.Time{}
			d.retry()
		case <-d.changed:
		case <-tick.C:
		}
	}
}

// update starts and stops targets so that they are what choose says.
func (d *dialer) update(ctx context.Context, links []Link, running *sync.WaitGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.missing = map[string]string{}
	wanted, all := map[pair]way{}, ways(links, d.peers(), d.cfg.Links)
	d.seekFar(all)
	for name := range d.wanted {
		begins := func(w way) bool { return w.link == name }
		switch {
		case !slices.ContainsFunc(links, func(l Link) bool { return l.Name == name }):
			d.missing[name] = d.unusable(name)
		case !slices.ContainsFunc(all, begins):
			d.missing[name] = "it has no address of the same family as one of the peer's"
		case d.cfg.spent(name) && !d.begun(name):
			d.missing[name] = capReached
		}
	}
	for _, w := range choose(d.unspent(all, wanted), d.works, func(p pair) bool { return d.doubtful(p, now) }, d.silent) {
		wanted[w.pair] = w
	}
	for p, t := range d.targets {
		w, ok := wanted[p]
		if !ok {
			t.cancel()
			delete(d.targets, p)
			continue
		}
		t.tries = w.tries
		if t.path != nil && !have(links, p.link, t.path.wire.LocalAddr()) {
			go t.path.end(errLinkGone)
		}
	}
	for p, w := range wanted {
		if d.targets[p] == nil {
			of, cancel := context.WithCancel(ctx)
			t := &target{cancel: cancel, since: now, tries: w.tries, retry: newSignal(), path: d.had[p]}
			if t.path != nil {
				t.err = errPathLost
			}
			d.targets[p] = t
			running.Add(1)
			go func() { defer running.Done(); d.runPair(of, p, t) }()
		}
	}
}

// unusable is Unusable, asked once for each list of the links: a proxy has 900 connections.
func (d *dialer) unusable(name string) string {
	why, ok := d.absent[name]
	if !ok {
		why = Unusable(name)
		if d.absent == nil {
			d.absent = map[string]string{}
		}
		d.absent[name] = why
	}
	return why
}

// have reports whether a link has an address, given with a port, as far as that is known.
func have(links []Link, name string, at net.Addr) bool {
	local := addrPort(at)
	return !local.IsValid() || slices.ContainsFunc(links, func(l Link) bool {
		return l.Name == name && slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr() == local.Addr() })
	})
}

// begun reports whether the session has, or tries, a path over a link: what is on its way may still come.
func (d *dialer) begun(link string) bool {
	for p := range d.targets {
		if p.link == link {
			return true
		}
	}
	return false
}

func (d *dialer) works(p pair) bool { return d.targets[p] != nil && d.targets[p].works }

func (d *dialer) doubtful(p pair, now time.Time) bool {
	t := d.targets[p]
	return t != nil && !t.works && (t.failed > 0 || now.Sub(t.since) >= stagger)
}

// silent reports whether a pair has a path that has not ended but does not work.
func (d *dialer) silent(p pair) bool {
	t := d.targets[p]
	if t == nil || t.works || t.path == nil {
		return false
	}
	select {
	case <-t.path.done:
		return false
	default:
		return true
	}
}

// retry ends pauses: a change on this host may have cured what failed.
func (d *dialer) retry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.targets {
		t.retry.signal()
	}
}

// late says whether an attempt ended because no answer came in its time.
func late(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// state reports whether there was a path ever, and whether every pair has failed, at each of its addresses, as often as it is tried.
func (d *dialer) state() (created, hopeless bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.targets {
		tries := len(t.tries)
		if late(t.err) {
			tries *= slowTries
		}
		if t.failed < tries {
			return d.created, false
		}
	}
	return d.created, true
}

// runPair keeps a path between a pair until ctx ends.
func (d *dialer) runPair(ctx context.Context, between pair, t *target) {
	for n := 0; ctx.Err() == nil; n++ {
		p, err := d.connect(ctx, between, t, n)
		if err != nil && ctx.Err() != nil {
			break
		}
		pause := d.note(between, t, p, err)
		if err == nil {
			p.untilSilent(ctx)
			d.lose(t)
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.retry:
		case <-time.After(pause):
		}
	}
	select {
	case <-d.c.done: // the session closes its paths itself
	default:
		if t.path != nil {
			t.path.end(errLinkGone)
		}
	}
}

// note keeps how an attempt ended, and says how long to pause after it. Once the session has ended, a failure says nothing of the link: the peer is no more.
func (d *dialer) note(between pair, t *target, p *path, err error) (pause time.Duration) {
	if err != nil && d.over() {
		return pauseAgain
	}
	defer d.changed.signal()
	d.mu.Lock()
	defer d.mu.Unlock()
	t.err, t.works, t.small = t.blame(err), err == nil, t.small || errors.Is(err, errUnanswered)
	if err == nil {
		t.path, t.failed, d.wanted[p.link], d.had[between] = p, 0, true, p
		if len(d.had) > maxPaths { // a listener may give its links one name after the other
			maps.DeleteFunc(d.had, func(of pair, _ *path) bool { return d.targets[of] == nil })
		}
		return 0
	}
	t.failed++
	switch {
	case t.path != nil:
		return pauseAgain
	case t.failed%len(t.tries) != 0:
		return 0 // another address may do
	}
	longest := pauseMax
	if d.known(between) {
		longest = pauseKnown
	}
	return min(longest, connectTime/2<<min(t.failed/len(t.tries), 10))
}

// known reports whether both links of a pair have had paths.
func (d *dialer) known(between pair) bool {
	link, to := false, false
	for p := range d.had {
		link, to = link || p.link == between.link, to || p.to == between.to
	}
	return link && to
}

// lose notes that a target's path does not work any more. The session's own end is no loss: what worked until then did.
func (d *dialer) lose(t *target) {
	if d.over() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.works, t.since = false, time.Now()
	select {
	case <-t.path.done:
		t.err = errPathLost
	default: // it is silent
	}
}

// over reports whether the session has ended, at either end.
func (d *dialer) over() bool {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return d.c.err != nil || d.c.ending
}

// untilSilent returns when the path has ended, or owes an answer for too long, or ctx ends.
func (p *path) untilSilent(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.done:
			return
		case now := <-tick.C:
			p.c.mu.Lock()
			since := p.flight.silentSince()
			p.c.mu.Unlock()
			if !since.IsZero() && now.Sub(since) > rivalAfter {
				return
			}
		}
	}
}
