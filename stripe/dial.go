package stripe

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// stagger is how long a pair may take to get its path before another one is tried beside it (RFC 8305 has 250 ms).
	stagger = 250 * time.Millisecond
	// slowTries is how often a pair that does not answer in time is tried, each time for longer, before there is no hope for it: a link may need seconds for the three
	// round trips, behind a full queue or over a satellite.
	slowTries = 2
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

// Dial connects to a listener at host:port, of which there may be several: its addresses on all its links, or some of them; it tells
// the others itself. What one name leads to counts as one link: give those of several one by one. Dial returns as soon as there is one path; the others follow, and paths are made and dropped as links come
// and go until the connection is closed. ctx is for Dial only. Where no address can be connected to, it fails before ctx ends: at once if all refuse, after 11 s or more if none answers.
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
	d.c.failures, d.c.refused = d.failures, d.refused
	first, stopped := make(chan error, 1), make(chan struct{})
	run, cancel := context.WithCancel(context.Background())
	d.c.onFinish = cancel
	go d.c.runWatch()
	go func() { defer close(stopped); d.runPairs(run, first) }()
	select {
	case err = <-first:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), d.errors())
	case <-d.c.done: // the peer has ended it with the first path
		err = errors.Join(d.c.reason(), d.errors())
	}
	if err != nil {
		d.c.finish(net.ErrClosed, "")
		<-stopped
		return nil, fmt.Errorf("stripe: no path to the peer:\n%w", err)
	}
	return d.c, nil
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
	d.seekFar(links, all)
	for name := range d.wanted {
		begins := func(w way) bool { return w.link == name }
		switch {
		case !slices.ContainsFunc(links, func(l Link) bool { return l.Name == name }):
			d.missing[name] = d.unusable(name)
		case !slices.ContainsFunc(all, begins):
			d.missing[name] = d.apart(links[slices.IndexFunc(links, func(l Link) bool { return l.Name == name })])
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
			running.Go(func() { d.runPair(of, p, t) })
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
