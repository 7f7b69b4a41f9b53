package stripe

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// simWire is one end of a simulated path, as TCP shows it to a process: what is written leaves at the link's rate, with at most a
// bandwidth-delay product and a queue on its way, arrives after the delay, all of it, in order. It runs in the time of a
// synctest bubble.
type simWire struct {
	out, in *simWay
	addr    net.Addr
	ahead   int
	mu      sync.Mutex
}

// simWay is one direction.
type simWay struct {
	bps    float64 // bytes per second
	delay  time.Duration
	window int // bytes on their way at most

	mu      sync.Mutex
	unsent  [][]byte
	waiting int // bytes of them
	flying  int
	arrived []byte
	frozen  bool
	held    [][]byte      // arrived while frozen
	closed  bool          // by the reader
	ended   bool          // by the writer: what it wrote still arrives
	eof     bool          // that has arrived
	changed chan struct{} // closed and replaced at each change
	by      time.Time     // deadline of reads
	heard   time.Time     // of the last acknowledgement
	acked   int           // bytes
	mute    bool          // acknowledgements are lost from now on
}

func newSimWay(mbps float64, delay time.Duration, queue int) *simWay {
	bps := mbps * 1e6 / 8
	w := &simWay{bps: bps, delay: delay, window: int(bps*2*delay.Seconds()) + queue, changed: make(chan struct{})}
	go w.run()
	return w
}

func (w *simWay) tell() { close(w.changed); w.changed = make(chan struct{}) }

// wait runs f, with the lock held, at each change until it returns true.
func (w *simWay) wait(f func() bool) {
	for {
		w.mu.Lock()
		ok, changed := f(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		<-changed
	}
}

// run sends what waits, 1500 bytes at a time, or what takes 0.1 ms.
func (w *simWay) run() {
	for {
		var b []byte
		closed := false
		w.wait(func() bool {
			closed = w.closed || w.ended && len(w.unsent) == 0
			if len(w.unsent) > 0 && w.flying < w.window {
				n := min(max(1500, int(w.bps/10000)), len(w.unsent[0]))
				b = w.unsent[0][:n]
				if w.unsent[0] = w.unsent[0][n:]; len(w.unsent[0]) == 0 {
					w.unsent = w.unsent[1:]
				}
				w.waiting -= n
				w.flying += n
				w.tell()
			}
			return b != nil || closed
		})
		if b == nil && closed {
			time.AfterFunc(w.delay+1, func() { w.arrive(nil) })
			return
		}
		time.Sleep(time.Duration(float64(len(b)) / w.bps * 1e9))
		time.AfterFunc(w.delay, func() { w.arrive(b) })
	}
}

func (w *simWay) arrive(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen {
		w.held = append(w.held, b)
		return
	}
	w.arrived, w.eof = append(w.arrived, b...), b == nil
	w.tell()
	time.AfterFunc(w.delay, func() { w.acknowledge(len(b)) })
}

func (w *simWay) acknowledge(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mute {
		w.flying, w.heard = w.flying-n, time.Now()
		w.acked += n
		w.tell()
	}
}

// freeze lets nothing arrive; thaw lets everything arrive that was held, as TCP's retransmissions do.
func (w *simWay) freeze() { w.mu.Lock(); w.frozen = true; w.mu.Unlock() }

func (w *simWay) thaw() {
	w.mu.Lock()
	held := w.held
	w.frozen, w.held = false, nil
	w.mu.Unlock()
	for _, b := range held {
		w.arrive(b)
	}
}

func (w *simWay) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.tell()
	}
}

// simLink makes the two ends of a path.
func simLink(mbps float64, delay time.Duration, queue int) (near, far *simWire) {
	up, down := newSimWay(mbps, delay, queue), newSimWay(mbps, delay, queue)
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
	return &simWire{out: up, in: down, addr: addr, ahead: aheadMin}, &simWire{out: down, in: up, addr: addr, ahead: aheadMin}
}

func (s *simWire) Read(p []byte) (n int, err error) {
	s.in.wait(func() bool {
		n = copy(p, s.in.arrived)
		s.in.arrived = s.in.arrived[n:]
		if n == 0 && s.in.eof {
			err = io.EOF
		}
		if n == 0 && s.in.closed {
			err = net.ErrClosed
		}
		if n == 0 && !s.in.by.IsZero() && !time.Now().Before(s.in.by) {
			err = os.ErrDeadlineExceeded
		}
		return n > 0 || err != nil
	})
	return n, err
}

func (s *simWire) Write(p []byte) (int, error) {
	w := s.out
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.ended {
		return 0, net.ErrClosed
	}
	w.unsent = append(w.unsent, append([]byte(nil), p...))
	w.waiting += len(p)
	w.tell()
	return len(p), nil
}

func (s *simWire) writeAll(pieces [][]byte) error {
	_, err := s.Write(slices.Concat(pieces...))
	return err
}

func (s *simWire) waitRoom() (err error) {
	s.out.wait(func() bool {
		if s.out.closed || s.out.ended {
			err = net.ErrClosed
		}
		return err != nil || s.out.waiting*2 < s.aheadNow()
	})
	return err
}

func (s *simWire) aheadNow() int { s.mu.Lock(); defer s.mu.Unlock(); return s.ahead }

func (s *simWire) setAhead(bytes int) { s.mu.Lock(); s.ahead = bytes; s.mu.Unlock() }

func (s *simWire) buffered() bool { return false }

func (s *simWire) acknowledged() uint64 {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return uint64(s.out.acked)
}

// sinceHeard counts each packet's acknowledgement, as TCP does.
func (s *simWire) sinceHeard() time.Duration {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return time.Since(s.out.heard)
}

func (s *simWire) packetRTT() time.Duration { return 0 }

func (s *simWire) Close() error {
	s.out.mu.Lock()
	s.out.ended = true
	s.out.tell()
	s.out.mu.Unlock()
	s.in.close()
	return nil
}

func (s *simWire) kernelSends() bool { return true }

func (s *simWire) freeze() { s.out.freeze(); s.in.freeze() }

// loseAnswers lets what is on its way arrive, and nothing of the peer's, as when a link drops what is sent from now on.
func (s *simWire) loseAnswers() {
	s.in.freeze()
	s.out.mu.Lock()
	s.out.mute = true
	s.out.mu.Unlock()
}

func (s *simWire) thaw() { s.out.thaw(); s.in.thaw() }

func (s *simWire) LocalAddr() net.Addr  { return s.addr }
func (s *simWire) RemoteAddr() net.Addr { return s.addr }

func (s *simWire) SetReadDeadline(t time.Time) error {
	s.in.mu.Lock()
	s.in.by = t
	s.in.mu.Unlock()
	time.AfterFunc(time.Until(t), func() { s.in.mu.Lock(); s.in.tell(); s.in.mu.Unlock() })
	return nil
}
func (s *simWire) SetWriteDeadline(time.Time) error { return nil }
func (s *simWire) SetDeadline(time.Time) error      { return nil }

// simSession is a session over simulated paths.
type simSession struct {
	near, far *Conn
	wires     []*simWire // near ends
}

type simPath struct {
	mbps   float64
	delay  time.Duration // one way
	queue  int           // bytes
	policy Policy
}

func newSimSession(t *testing.T, paths ...simPath) *simSession {
	t.Helper()
	s := &simSession{near: newConn([16]byte{1}, PublicKey{}, &Config{}), far: newConn([16]byte{1}, PublicKey{}, &Config{})}
	s.far.peers = func() []Peer { return nil }
	go s.near.runWatch()
	go s.far.runWatch()
	for _, p := range paths {
		s.add(t, p)
	}
	return s
}

func (s *simSession) add(t *testing.T, p simPath) {
	t.Helper()
	near, far := simLink(p.mbps, p.delay, p.queue)
	h := hello{Path: uint32(len(s.wires) + 1), Link: string(rune('a' + len(s.wires))), Policy: p.policy}
	s.wires = append(s.wires, near)
	if _, err := s.far.attach(far, hello{Path: h.Path, Link: "far", To: h.Link, Policy: p.policy}, Policy{}, 2*p.delay); err != nil {
		t.Fatal(err)
	}
	h.Policy = Policy{}
	if _, err := s.near.attach(near, h, p.policy, 2*p.delay); err != nil {
		t.Fatal(err)
	}
}
