package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"plait.dev/plait/egress"
)

// patience of a test for what happens at once on an idle machine.
const patience = 30 * time.Second

// reflector is the other side of a session, played by a test.
type reflector struct {
	t        testing.TB
	listener net.Listener
	open     func(*wire.BGPOpen) // changes its OPEN
	restart  []wire.Family       // of its graceful restart, with their forwarding state
	flags    byte                // of these families
	seconds  uint16              // restart time
	hold     uint16

	conn  net.Conn
	mu    sync.Mutex
	heard []*wire.BGPMessage // from the speaker
}

func newReflector(t testing.TB, address string) *reflector {
	t.Helper()
	var l net.ListenConfig
	l.SetMultipathTCP(false) // TCP-MD5 is not for MPTCP
	listener, err := l.Listen(context.Background(), "tcp", address)
	must(t, err)
	r := &reflector{t: t, listener: listener, hold: 90, flags: 0x80, seconds: 60}
	t.Cleanup(func() {
		_ = listener.Close()
		if r.conn != nil {
			_ = r.conn.Close()
		}
	})
	return r
}

// config is that of a speaker for these reflectors.
func config(reflectors ...*reflector) Config {
	c := Config{AS: testAS, RouterID: hostID}
	for _, r := range reflectors {
		at := netip.MustParseAddrPort(r.listener.Addr().String())
		c.Reflectors = append(c.Reflectors, Reflector{Address: at.Addr(), Port: at.Port(), RetryTime: 20 * time.Millisecond})
	}
	return c
}

// greet accepts the speaker's next connection and brings the session up, or as far as it goes.
func (r *reflector) greet() {
	r.t.Helper()
	must(r.t, r.listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	conn, err := r.listener.Accept()
	must(r.t, err)
	r.conn = conn
	capabilities := []wire.ParameterCapabilityInterface{wire.NewCapFourOctetASNumber(testAS), wire.NewCapExtendedMessage()}
	var paths []*wire.CapAddPathTuple
	for _, f := range wireFamilies {
		capabilities = append(capabilities, wire.NewCapMultiProtocol(f))
		paths = append(paths, wire.NewCapAddPathTuple(f, wire.BGP_ADD_PATH_SEND))
	}
	capabilities = append(capabilities, wire.NewCapAddPath(paths))
	if r.restart != nil {
		var tuples []*wire.CapGracefulRestartTuple
		for _, f := range r.restart {
			tuples = append(tuples, wire.NewCapGracefulRestartTuple(f, r.flags&0x80 != 0))
		}
		capabilities = append(capabilities, wire.NewCapGracefulRestart(false, true, r.seconds, tuples))
	}
	open, err := wire.NewBGPOpenMessage(testAS, r.hold, reflectorID, []wire.OptionParameterInterface{wire.NewOptionParameterCapability(capabilities)})
	must(r.t, err)
	if r.open != nil {
		r.open(open.Body.(*wire.BGPOpen))
	}
	r.say(open)
	r.hear(conn)
	r.say(wire.NewBGPKeepAliveMessage())
	go func() {
		for r.hear(conn) {
		}
	}()
}

func (r *reflector) say(messages ...*wire.BGPMessage) {
	r.t.Helper()
	for _, m := range messages {
		if _, err := r.conn.Write(encode(r.t, m, m.Header.Type == wire.BGP_MSG_UPDATE)); err != nil {
			r.t.Logf("reflector: %v", err) // a refused session ends while the reflector still talks
		}
	}
}

func (r *reflector) hear(conn net.Conn) bool {
	header := make([]byte, wire.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(conn, header); err != nil {
		return false
	}
	raw := append(header, make([]byte, int(binary.BigEndian.Uint16(header[16:]))-len(header))...)
	if _, err := io.ReadFull(conn, raw[len(header):]); err != nil {
		return false
	}
	m, err := wire.ParseBGPMessage(raw)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, m)
	return true
}

// notification is the last one of the speaker.
func (r *reflector) notification() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range slices.Backward(r.heard) {
		if n, ok := m.Body.(*wire.BGPNotification); ok {
			return fmt.Sprintf("%d/%d", n.ErrorCode, n.ErrorSubcode)
		}
	}
	return ""
}

// watcher is the receiver of the events: it holds the routes and what happened.
type watcher struct {
	t        testing.TB
	speaker  *Speaker
	stop     context.CancelFunc
	mu       sync.Mutex
	routes   map[egress.Key]*egress.Route
	happened []string // ups, downs and ends of RIB
	gone     []string // prefixes withdrawn
	down     Down
	calls    int // with routes
}

func watch(t *testing.T, c Config) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{t: t, stop: cancel, routes: map[egress.Key]*egress.Route{}}
	var err error
	w.mu.Lock() // until the speaker is there
	w.speaker, err = Start(ctx, c, w.take)
	w.mu.Unlock()
	must(t, err)
	t.Cleanup(func() {
		cancel()
		w.speaker.Wait()
	})
	return w
}

func (w *watcher) take(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.speaker.Sessions() // may be asked at any time
	switch e := e.(type) {
	case Up:
		w.happened = append(w.happened, "up")
	case Down:
		w.happened = append(w.happened, "down")
		w.down = e
	case EndOfRIB:
		w.happened = append(w.happened, "end of "+e.Family.String())
	case Routes:
		w.calls++
		for _, u := range e.Updates {
			if u.Route != nil {
				w.routes[u.Key] = u.Route
			} else if _, ok := w.routes[u.Key]; ok {
				delete(w.routes, u.Key)
				w.gone = append(w.gone, u.Prefix.String())
			} else {
				w.t.Errorf("withdrawn, but never announced: %+v", u.Key)
			}
		}
	}
}

// until waits for a condition on the watcher.
func (w *watcher) until(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		late := time.Now().After(end) // before it looks, or a pause of the test fails it
		w.mu.Lock()
		ok := is()
		w.mu.Unlock()
		if ok {
			return
		}
		if late {
			w.t.Fatalf("waited %s for %s; routes %v, happened %v, sessions %+v", patience, what, w.prefixes(), w.happened, w.speaker.Sessions())
		}
	}
}

func (w *watcher) has(prefixes ...string) {
	w.t.Helper()
	slices.Sort(prefixes)
	w.until(fmt.Sprint("routes ", prefixes), func() bool { return slices.Equal(w.prefixesLocked(), prefixes) })
}

func (w *watcher) prefixes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prefixesLocked()
}

func (w *watcher) prefixesLocked() []string {
	out := []string{}
	for k := range w.routes {
		out = append(out, k.Prefix.String())
	}
	slices.Sort(out)
	return out
}

func (w *watcher) event(what string, times int) {
	w.t.Helper()
	w.until(fmt.Sprintf("event %q, %d times", what, times), func() bool {
		n := 0
		for _, h := range w.happened {
			if h == what {
				n++
			}
		}
		return n == times
	})
}

func (w *watcher) lastError() string { return w.speaker.Sessions()[0].LastError }
