package stripe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// closeWait is how long Close waits for the peer to close its end after everything was acknowledged.
	closeWait = time.Second
	// closeStall is how long Close waits without any progress for what was written to be acknowledged.
	closeStall = 10 * time.Second
	// tickEvery is how often rates are averaged and paths looked after.
	tickEvery = 100 * time.Millisecond
	// pingBusy and pingIdle are how often a path is asked for a sign of life, while data flows and when not.
	pingBusy = time.Second
	pingIdle = 5 * time.Second
	// pathDead is after how much silence the listener closes a path, and the dialer, which has long tried another one then, counts it as none.
	pathDead = time.Minute
	// desertedPatience is the least of the same when the peer has most likely died, desertedTrips how many round trips it is else: a new connection takes three or four. The dialer
	// counts by it while the peer's host refuses new connections, and only then: closed is a path also by a listener that lives, and reset by a router, and a new one may be slow.
	desertedPatience = 2 * time.Second
	desertedTrips    = 6
	// unmetPatience is the same if the dialer has said nothing on the path since its hello: it gave the attempt up before the welcome came, most likely, and makes another one, which
	// may take connectTimeMax after a pause.
	unmetPatience = 2 * connectTimeMax
	// forgottenPatience is how much longer the listener waits after a reset, which may come from a router that has forgotten the connection: on an idle one the dialer, who
	// alone can make another, notices when it asks for a sign of life.
	forgottenPatience = pingIdle + rivalAfter
	// spentPatience is the same when all links of this host have reached their caps: what the peer has sent may still come.
	spentPatience = 2 * time.Second
	// defaultPatience is how long a session waits without any path.
	defaultPatience = 3 * time.Minute
)

// maxPaths is how many paths a session may have: more than any two hosts have links.
const maxPaths = 64

var (
	// ErrClosedByPeer is what reading and writing end with after the peer has closed the connection. What the peer wrote before
	// can be read first.
	ErrClosedByPeer = errors.New("connection closed by the peer")
	// ErrNoPath is what a connection ends with when it had no path for as long as Config.Patience.
	ErrNoPath = errors.New("no path to the peer")
	// ErrSpent is what a connection ends with when no link may carry any more: each has reached its Policy.CapBytes.
	ErrSpent = errors.New("all links have reached their caps, which are for one run; raise the caps, or use more links")

	errGone     = errors.New("closed by the peer")
	errReplaced = errors.New("replaced by a new one")
)

// Conn is a stream between two hosts, over all their links at once. It implements [net.Conn]; all methods may be used by
// several goroutines. Closing it waits until the peer has everything.
type Conn struct {
	id       [16]byte
	peerKey  PublicKey
	patience time.Duration
	cfg      *Config
	peers    func() []Peer                    // the listener's links, to tell the dialer; nil at the dialer
	hear     func([]Peer)                     // takes what the listener tells
	onFinish func()                           // forgets the session
	offered  bool                             // to Accept; guarded by the listener
	failures func(far bool) map[string]string // links of this host, or the peer's, without a path, and why; at the dialer
	refused  func() time.Duration             // for how long the peer's host has refused what had worked; it is not asked with the session locked

	mu         sync.Mutex
	out        scheduler
	in         reorder
	advertised uint64 // the highest limit told
	window     int
	paths      map[uint32]*path  // by id
	meters     map[string]*meter // by name of this host's link
	farMeters  map[string]*meter // by name of the peer's
	pathless   time.Time         // since when there is none that may carry anything; zero: there are
	deserted   time.Duration     // above 0: patience, for the last one was closed by the peer's host without a farewell: its process may have died
	local      net.Addr          // of the newest path
	remote     net.Addr
	err        error // why it ended, valid when done is closed
	inClose    bool
	left       bool // this end has called Close or Abort
	farewell   bool // the peer's has come
	ending     bool // it has, and is taken in a moment

	readMu, writeMu             sync.Mutex
	readable, writable, emptied signal
	readDeadline, writeDeadline *deadline
	done                        chan struct{}
	running                     sync.WaitGroup // of paths
}

func newConn(id [16]byte, peer PublicKey, cfg *Config) *Conn {
	c := &Conn{id: id, peerKey: peer, patience: cfg.Patience, cfg: cfg, meters: map[string]*meter{}, farMeters: map[string]*meter{}, paths: map[uint32]*path{}, window: startWindow,
		readable: newSignal(), writable: newSignal(), emptied: newSignal(), readDeadline: newDeadline(), writeDeadline: newDeadline(),
		done: make(chan struct{}), pathless: time.Now(), onFinish: func() {}, hear: func([]Peer) {},
		refused: func() time.Duration { return math.MaxInt64 }} // the listener, who cannot ask, takes it that nobody is there
	if c.patience == 0 {
		c.patience = defaultPatience
	}
	c.out.free, c.out.limit = release, startWindow
	c.in.grow(startWindow)
	c.advertised = startWindow
	return c
}

// attach adds a path over a wire whose handshake took rtt. It may replace another one.
func (c *Conn) attach(w wire, h hello, own Policy, rtt time.Duration) (*path, error) {
	now := time.Now()
	p := &path{c: c, wire: w, id: h.Path, link: h.Link, to: h.To, pingedAt: now, in: meterRate{at: now}, out: meterRate{at: now}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.flight = &flight{}
	p.flight.sampleRTT(max(rtt, time.Microsecond))
	c.mu.Lock()
	old := c.paths[h.Replaces]
	c.mu.Unlock()
	if old != nil {
		old.end(errReplaced)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuses(h); err != nil {
		return nil, err
	}
	p.flight.ends = [2]end{{own, c.meterOf(c.meters, own, use{own: true, link: p.link})}, {h.Policy, c.meterOf(c.farMeters, h.Policy, use{peer: c.peerKey, link: p.to})}}
	p.flight.near = p.flight.ends[0].meter
	if c.peers != nil {
		p.flight.near = p.flight.ends[1].meter
	}
	c.paths[h.Path] = p
	c.deserted = 0 // the peer lives
	if !p.flight.spent() {
		c.pathless = time.Time{}
	}
	c.local, c.remote = w.LocalAddr(), w.RemoteAddr()
	c.out.add(p.flight)
	p.linksDue = c.peers != nil
	p.ackDue = true // the last one may be lost with the path it went over, or was due while there was none: the peer may wait for its credit
	c.running.Go(p.runWriter)
	c.running.Go(p.runReader)
	return p, nil
}

// refuses is why there can be no path for a hello; nil: there can be one. The caller has c.mu.
func (c *Conn) refuses(h hello) error {
	paths := len(c.paths)
	if c.paths[h.Replaces] != nil {
		paths--
	}
	switch {
	case c.err != nil:
		return c.err
	case paths >= maxPaths:
		return fmt.Errorf("stripe: session has %d paths already, no more are allowed", maxPaths)
	case c.paths[h.Path] != nil:
		return fmt.Errorf("stripe: session has a path %d already", h.Path)
	case c.farMeters[h.To] == nil && len(c.farMeters) >= maxPaths:
		return fmt.Errorf("stripe: session has had %d links of the peer, no more are allowed", maxPaths)
	}
	return nil
}

// meterOf is a link's, which outlives its paths. What a cap is for outlives the connection.
func (c *Conn) meterOf(meters map[string]*meter, policy Policy, of use) *meter {
	if meters[of.link] == nil {
		m := newMeter()
		if policy.CapBytes > 0 {
			m.used = c.cfg.used.of(of)
		}
		meters[of.link] = m
	}
	return meters[of.link]
}

// drop forgets a path that has ended. The peer may not know yet.
func (c *Conn) drop(p *path) {
	c.out.remove(p.flight)
	delete(c.paths, p.id)
	for _, other := range c.paths {
		other.pending = appendFrame(other.pending, frameGone, binary.BigEndian.AppendUint32(nil, p.id))
	}
	if len(c.paths) == 0 {
		c.pathless = time.Now()
		c.deserted = 0
		if byPeer(p.err) && !p.moves {
			c.deserted = max(desertedPatience, desertedTrips*p.flight.srtt)
			switch {
			case c.peers != nil && !p.met:
				c.deserted = unmetPatience
			case c.peers != nil && !errors.Is(p.err, errGone):
				c.deserted += forgottenPatience
			}
		}
	}
	c.wakeWriters()
}

// byPeer reports whether a path ended because the peer's host closed it.
func byPeer(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (c *Conn) wakeWriters() {
	for _, p := range c.paths {
		p.wakeUp()
	}
	if c.out.idle() {
		c.emptied.signal()
	}
}

// Read reads what comes next of the peer's stream. It returns [io.EOF] after the peer's end of stream.
func (c *Conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for {
		select {
		case <-c.readDeadline.wait():
			return 0, c.timedOut("read")
		default:
		}
		c.mu.Lock()
		var n int
		err := c.err
		if c.left {
			err = net.ErrClosed
		}
		if !errors.Is(err, net.ErrClosed) { // what the peer wrote before it closed can be read
			if n, err = c.in.take(p); err == nil && n == 0 {
				err = c.err
			}
		}
		if n > 0 {
			c.credit()
		}
		c.mu.Unlock()
		if n > 0 || errors.Is(err, io.EOF) {
			return n, err
		}
		if err != nil {
			return 0, c.opError("read", err)
		}
		if len(p) == 0 {
			return 0, nil
		}
		if c.readable.await(c.readDeadline, c.done) != nil {
			return 0, c.timedOut("read")
		}
	}
}

// credit raises the limit after a read, and tells the peer when a quarter of the window has become free.
func (c *Conn) credit() {
	c.in.grow(c.window)
	if c.in.limit-c.advertised >= uint64(c.window/4) {
		c.advertised = c.in.limit
		for _, p := range c.paths {
			p.ackDue = true
			p.wakeUp()
		}
	}
}

// Write sends p. It returns when p is in memory to be sent, of which there is as much as the paths use.
func (c *Conn) Write(p []byte) (int, error) {
	written := 0
	err := c.write(func(now time.Time) bool {
		written += c.out.write(p[written:], now)
		return written == len(p)
	})
	return written, err
}

// write has add take more, as often as there is room, until it says that all is taken.
func (c *Conn) write(add func(now time.Time) bool) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	for {
		select {
		case <-c.writeDeadline.wait():
			return c.timedOut("write")
		default:
		}
		c.mu.Lock()
		err := c.err
		if c.left || err == nil && c.out.ended {
			err = net.ErrClosed
		}
		if err != nil {
			c.mu.Unlock()
			return c.opError("write", err)
		}
		all := add(time.Now())
		c.wakeWriters()
		c.mu.Unlock()
		if all {
			return nil
		}
		if c.writable.await(c.writeDeadline, c.done) != nil {
			return c.timedOut("write")
		}
	}
}

// ReadFrom sends what r gives until it ends. It implements [io.ReaderFrom]: with [io.Copy], large reads go where they are sent from.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	sent := int64(0)
	for {
		frame, taken := buffer(maxPayload), 0
		n, end := r.Read(frame[dataHeader:maxFrame])
		var err error
		add := func(now time.Time) bool {
			if n < maxPayload {
				taken += c.out.write(frame[dataHeader+taken:dataHeader+n], now)
			} else if c.out.room() > 0 {
				c.out.adopt(frame[:maxFrame], now)
				frame, taken = nil, n
			}
			return taken == n
		}
		if n > 0 {
			err = c.write(add)
		}
		release(frame)
		sent += int64(taken)
		switch {
		case err != nil:
			return sent, err
		case errors.Is(end, io.EOF):
			return sent, nil
		case end != nil:
			return sent, end
		}
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
func (timeoutError) Unwrap() error   { return os.ErrDeadlineExceeded }

// timedOut is what a passed deadline gives; after Close and Abort it counts no more.
func (c *Conn) timedOut(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return c.opError(op, net.ErrClosed)
	}
	return c.opError(op, timeoutError{})
}

func (c *Conn) opError(op string, err error) error {
	if errors.Is(err, net.ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "stripe", Err: err}
}

// LocalAddr is the address of this end of the newest path; nil before there was one.
func (c *Conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// RemoteAddr is the address of the peer's end of the newest path; nil before there was one.
func (c *Conn) RemoteAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

// Done is closed when the connection has ended, at either end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// PeerKey is the key the peer proved to have.
func (c *Conn) PeerKey() PublicKey { return c.peerKey }

// SetDeadline sets both deadlines, as [net.Conn] says.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline sets until when Read waits.
func (c *Conn) SetReadDeadline(t time.Time) error { c.readDeadline.set(t); return nil }

// SetWriteDeadline sets until when Write waits.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.writeDeadline.set(t); return nil }
