package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"
)

const (
	// greetTime is how long a dialer may take from TCP's handshake to its hello.
	greetTime = 10 * time.Second
	// defaultMaxConns bounds sessions, maxWaiting those that wait for Accept: dialers that come at once are many more than a program accepts before others have the CPU.
	defaultMaxConns = 1000
	maxWaiting      = defaultMaxConns
	// remember is how long the name of a session that has ended stays known, so that a late path does not begin it again.
	remember = 2 * greetTime
)

// Listener accepts connections of [Dial], each over many paths. It implements [net.Listener].
type Listener struct {
	cfg      *Config
	in       acceptor
	accepted chan *Conn
	greeting greeters
	stop     context.CancelFunc
	done     <-chan struct{}

	mu       sync.Mutex
	sessions map[[16]byte]*Conn
	ended    map[[16]byte]bool
	links    []Link
}

// Listen listens at host:port. An empty host is all links of this host, as they come and go; port 0 is any free one, which Addr tells.
// A connection goes on after Close of its Listener, but gets no more paths.
func Listen(cfg *Config, addr string) (*Listener, error) {
	conf, err := cfg.check()
	if err != nil {
		return nil, err
	}
	in, err := carriers[cfg.Carrier].listen(addr, conf)
	if err != nil {
		return nil, fmt.Errorf("stripe: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Listener{cfg: cfg, in: in, accepted: make(chan *Conn, maxWaiting), stop: stop,
		done: ctx.Done(), sessions: map[[16]byte]*Conn{}, ended: map[[16]byte]bool{}}
	events := watchLinks(ctx)
	if l.links, err = Links(); err != nil {
		stop()
		in.Close()
		return nil, err
	}
	go l.runLinks(ctx, events, Links)
	go l.runAccept(ctx)
	return l, nil
}

// Accept waits for the next connection. It is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "stripe", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close stops listening, and ends connections that Accept has not returned.
func (l *Listener) Close() error {
	l.stop()
	l.desert()
	return l.in.Close()
}

// desert ends connections that nobody will accept any more.
func (l *Listener) desert() {
	for {
		select {
		case c := <-l.accepted:
			c.finish(net.ErrClosed, "the listener is closed")
		default:
			return
		}
	}
}

// Addr is the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.in.Addr() }

// Peers are the addresses at which this host's links can be reached now, to be given to a dialer.
func (l *Listener) Peers() []Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := addrPort(l.in.Addr())
	peers := announce(l.links, l.cfg.allows, at.Port())
	if addr := at.Addr(); !addr.IsUnspecified() {
		peers = []Peer{{Link: linkOf(l.links, addr), Addrs: []netip.AddrPort{netip.AddrPortFrom(addr, at.Port())}}}
	}
	for i, p := range peers {
		peers[i].Policy = l.cfg.Links[p.Link]
	}
	return peers
}

// linkOf names the link that has an address.
func linkOf(links []Link, addr netip.Addr) string {
	for _, l := range links {
		for _, a := range l.Addrs {
			if a.Addr() == addr {
				return l.Name
			}
		}
	}
	return addr.String()
}

// runLinks keeps the list of links, and tells dialers when it changes. Where they cannot be listed, for want of file descriptors for instance, it tries again: the next event may be
// hours away.
func (l *Listener) runLinks(ctx context.Context, events <-chan struct{}, list func() ([]Link, error)) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-again:
		}
		links, err := list()
		if again = nil; err != nil {
			again = time.After(relistEvery)
			continue
		}
		l.mu.Lock()
		if reflect.DeepEqual(links, l.links) { // a route has changed
			l.mu.Unlock()
			continue
		}
		l.links = links
		sessions := make([]*Conn, 0, len(l.sessions))
		for _, c := range l.sessions {
			sessions = append(sessions, c)
		}
		l.mu.Unlock()
		for _, c := range sessions {
			c.linksChanged(links)
		}
	}
}

// linksChanged ends paths whose address is gone, and tells the dialer about the others. An address that no link had when the path began, since a whole prefix is this host's, say, is none that goes
// with a link.
func (c *Conn) linksChanged(links []Link) {
	var gone []*path
	c.mu.Lock()
	for _, p := range c.paths {
		if addr := addrPort(p.wire.LocalAddr()).Addr(); !addr.IsLoopback() && linkOf(links, addr) == addr.String() && p.link != addr.String() {
			gone = append(gone, p)
			continue
		}
		p.linksDue = true
		p.wakeUp()
	}
	c.mu.Unlock()
	for _, p := range gone {
		p.end(errors.New("link or address is gone"))
	}
}

// runAccept takes connections, each in a goroutine of its own until it has become a path.
func (l *Listener) runAccept(ctx context.Context) {
	for {
		conn, err := l.in.accept()
		if err == nil && ctx.Err() != nil { // it came while the listener was closed; QUIC may have more of them
			conn.Close()
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil {
			sleep(ctx, 100*time.Millisecond) // out of file descriptors, for instance
			continue
		}
		from := addrPort(conn.RemoteAddr()).Addr()
		if !l.greeting.enter(from) {
			conn.Close()
			continue
		}
		go func() {
			defer l.greeting.leave(from)
			_ = l.welcome(conn)
		}()
	}
}

// welcome makes a path of a connection, or closes it.
func (l *Listener) welcome(conn caller) error {
	ctx, cancel := context.WithTimeout(context.Background(), greetTime)
	defer cancel()
	w, err := conn.open(ctx)
	if err != nil {
		return err
	}
	if err := l.admit(ctx, w); err != nil {
		w.Close()
		return err
	}
	return nil
}

// admit hears who it is, and what for.
func (l *Listener) admit(ctx context.Context, w *opened) error {
	by, _ := ctx.Deadline()
	if err := w.SetDeadline(by); err != nil {
		return err
	}
	key, err := peerKey(w.tls)
	if err != nil {
		return err
	}
	h, err := readHello(w)
	if err != nil {
		return refuse(w, err)
	}
	l.mu.Lock()
	h.To, h.Link = h.Link, linkOf(l.links, addrPort(w.LocalAddr()).Addr())
	l.mu.Unlock()
	if !l.cfg.allows(Link{Name: h.Link}) {
		return refuse(w, fmt.Errorf("link %s there is not to be used", h.Link))
	}
	c, err := l.session(h, key)
	if err == nil { // after the welcome a refusal ends the session, as it should if that has ended
		c.mu.Lock()
		if c.err == nil {
			err = c.refuses(h)
		}
		c.mu.Unlock()
	}
	if err != nil {
		return refuse(w, err)
	}
	if _, err := w.Write(appendJSON(nil, frameWelcome, welcome{Link: h.Link, Policy: l.cfg.Links[h.Link]})); err != nil {
		return err
	}
	if err := w.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := c.attach(w.wire, h, l.cfg.Links[h.Link], w.rtt); err != nil {
		_ = w.SetDeadline(by) // a peer that does not read must not be waited for
		return refuse(w, err)
	}
	l.offer(c)
	return nil
}

// offer gives a session to Accept, once.
func (l *Listener) offer(c *Conn) {
	l.mu.Lock()
	fresh := !c.offered
	c.offered = true
	l.mu.Unlock()
	if fresh {
		select {
		case l.accepted <- c:
		case <-l.done:
			c.finish(net.ErrClosed, "the listener is closed")
		}
		select {
		case <-l.done: // perhaps Close has looked already
			l.desert()
		default:
		}
	}
}

// refuse tells the dialer why.
func refuse(w wire, err error) error {
	text := err.Error()
	_, _ = w.Write(appendFrame(nil, frameClose, []byte(text[:min(len(text), 1000)])))
	return err
}

// session finds the session of a hello, or makes it. It belongs to the key that began it.
func (l *Listener) session(h hello, key PublicKey) (*Conn, error) {
	id := [16]byte(h.Session)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.sessions[id]
	switch {
	case c != nil && c.peerKey == key:
		return c, nil
	case c != nil || !h.Create || l.ended[id]:
		return nil, errors.New(unknownSession)
	case len(l.sessions) >= cmp.Or(l.cfg.MaxConns, defaultMaxConns) || len(l.accepted) == maxWaiting:
		return nil, errors.New("too many connections; try again later")
	}
	c = newConn(id, key, l.cfg)
	c.peers = l.Peers
	c.onFinish = func() { l.forget(id) }
	l.sessions[id] = c
	go c.runWatch()
	return c, nil
}

// forget takes out a session that has ended.
func (l *Listener) forget(id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, id)
	l.ended[id] = true
	time.AfterFunc(remember, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.ended, id)
	})
}
