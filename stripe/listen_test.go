package stripe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// closing is an acceptor whose listener is closed just as somebody has arrived.
type closing struct {
	acceptor
	listener *Listener
}

func (a closing) accept() (caller, error) {
	conn, err := a.acceptor.accept()
	a.listener.Close()
	return conn, err
}

// Who arrives while the listener closes is hung up on: nobody would ever look after the connection, and with QUIC the socket would stay as long as that.
func TestArrivesWhileListenerCloses(t *testing.T) { overEach(t, testArrivesWhileListenerCloses) }

func testArrivesWhileListenerCloses(t *testing.T, over Carrier) {
	a, b := NewKey(), NewKey()
	cfg := &Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}
	conf, err := cfg.check()
	if err != nil {
		t.Fatal(err)
	}
	in, err := carriers[over].listen("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	l := &Listener{cfg: cfg, stop: stop, done: ctx.Done()}
	l.in = closing{in, l}
	ended := make(chan struct{})
	go func() { l.runAccept(ctx); close(ended) }()
	near := &Config{Key: a, Peers: []PublicKey{b.Public()}}
	if conf, err = near.check(); err != nil {
		t.Fatal(err)
	}
	dialing, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	w, err := carriers[over].dial(dialing, source{link: "lo", addr: netip.MustParseAddr("127.0.0.1")}, addrPort(in.Addr()), conf)
	if err == nil {
		defer w.Close()
		_ = w.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = w.Write([]byte{0}) // QUIC's stream begins with it
		_, err = w.Read(make([]byte, 1))
	}
	if late(err) {
		t.Errorf("it is left waiting: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("more are waited for")
	}
}

// plain is a wire of which only the connection is used.
type plain struct {
	net.Conn
	beyond
}

type beyond interface {
	writeAll([][]byte) error
	waitRoom() error
	setAhead(int)
	kernelSends() bool
	buffered() bool
	acknowledged() uint64
	sinceHeard() time.Duration
	packetRTT() time.Duration
}

func (plain) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
}

// A path that is refused after the welcome is told so by the time that any greeting has: who then does not read (QUIC lets him say of how much he has room for) held a
// goroutine, and the room of another dialer.
func TestRefusedPeerDoesNotRead(t *testing.T) {
	a, b := NewKey(), NewKey()
	l := &Listener{cfg: &Config{Key: b, Peers: []PublicKey{a.Public()}}, sessions: map[[16]byte]*Conn{}}
	c := newConn([16]byte{1}, a.Public(), l.cfg)
	c.paths[1] = &path{}
	l.sessions[c.id] = c
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		_, _ = there.Write(appendJSON(nil, frameHello, hello{Version: version, Session: c.id[:], Path: 1}))
		_, _ = readFrame(there, make([]byte, maxFrame))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := &opened{wire: plain{Conn: here}, tls: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{PublicKey: a.key.Public()}}}}
	refused := make(chan error, 1)
	go func() { refused <- l.admit(ctx, w) }()
	select {
	case err := <-refused:
		if err == nil {
			t.Error("a second path 1 is taken")
		}
	case <-time.After(10 * time.Second):
		t.Error("the peer is waited for")
	}
}

// A path to an address that no link has, of a whole prefix that is this host's (ip route add local) or of a link without a carrier, goes on when other links change. One whose link has
// lost its address ends.
func TestOtherLinksChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 1e6, queue: 1500}, simPath{mbps: 8, delay: 1e6, queue: 1500})
		defer s.close()
		s.far.mu.Lock()
		s.far.paths[2].link = linkOf(nil, addrPort(s.wires[1].addr).Addr())
		s.far.mu.Unlock()
		s.far.linksChanged([]Link{{Name: "other", Addrs: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24")}}})
		time.Sleep(time.Second)
		s.far.mu.Lock()
		defer s.far.mu.Unlock()
		if s.far.paths[1] != nil || s.far.paths[2] == nil {
			t.Errorf("left are %v", s.far.paths)
		}
	})
}

// Links that could not be listed when they changed are listed later: dialers would not hear of them before the next change.
func TestLinksCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l := &Listener{cfg: &Config{}}
		now := []Link{{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}
		events, failures := newSignal(), 2
		go l.runLinks(ctx, events, func() ([]Link, error) {
			if failures--; failures >= 0 {
				return nil, syscall.EMFILE
			}
			return now, nil
		})
		events.signal()
		time.Sleep(2*relistEvery + time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !reflect.DeepEqual(l.links, now) || failures != -1 {
			t.Errorf("links %v after %d lists", l.links, 2-failures)
		}
	})
}

// A dialer may have given up an attempt before the welcome of it came, where a link or a host is slow, and makes another one: the session must be there then. Who has heard of the
// welcome says something at once; who has, and is gone, has died.
func TestWelcomeComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := NewKey(), NewKey()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		in, err := carriers[TCP].listen("127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		l := &Listener{cfg: &Config{Key: b, Peers: []PublicKey{a.Public()}}, in: in, stop: stop, done: ctx.Done(), accepted: make(chan *Conn, maxWaiting),
			sessions: map[[16]byte]*Conn{}, ended: map[[16]byte]bool{}}
		defer l.Close()
		attempt := func(h hello, meets bool) {
			near, far := simLink(8, 15e6, 75000)
			go func() {
				_ = l.admit(ctx, &opened{wire: far, tls: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{PublicKey: a.key.Public()}}}, rtt: 30e6})
			}()
			h.Version, h.Session = version, make([]byte, 16)
			if _, err := greet(near, h); err != nil {
				t.Errorf("attempt %d: %v", h.Path, err)
			}
			if meets {
				_, _ = near.Write(appendNumbers(nil, framePing, 1))
				time.Sleep(time.Second)
			}
			near.Close()
		}
		attempt(hello{Path: 1, Create: true}, false)
		time.Sleep(connectTimeMax)
		attempt(hello{Path: 2, Create: true}, true)
		attempt(hello{Path: 3, Replaces: 2}, false)
		time.Sleep(connectTimeMax)
		attempt(hello{Path: 4, Replaces: 3}, true)
		time.Sleep(desertedPatience + time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.sessions) > 0 {
			t.Error("a dialer that has died is waited for")
		}
	})
}

// A program that accepts late, on a busy host, has all that came meanwhile: a burst of dialers is none too many.
func TestBurstWaitsForAccept(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := &Config{Key: a, Peers: []PublicKey{b.Public()}}
	const burst = 40
	for range burst {
		c, err := Dial(t.Context(), cfg, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
	}
	for range burst {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.(*Conn).Abort()
	}
}
