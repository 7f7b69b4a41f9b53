package stripe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"plait.dev/plait/internal/rung"
)

// overEach runs a test over every carrier this kernel has.
func overEach(t *testing.T, test func(t *testing.T, over Carrier)) {
	for _, over := range carriersHere() {
		t.Run(string(over), func(t *testing.T) { test(t, over) })
	}
}

// carriersHere are those this kernel has; TestKernelHasSCTP tells if one is missing.
func carriersHere() []Carrier {
	f, err := sctpSocket(netip.IPv4Unspecified())
	if err != nil {
		return []Carrier{TCP, QUIC}
	}
	f.Close()
	return []Carrier{TCP, QUIC, SCTP}
}

func TestKernelHasSCTP(t *testing.T) {
	if !slices.Contains(carriersHere(), SCTP) {
		t.Skip("this kernel has no SCTP, so tests over it run in TestSCTPInGuest alone; as root: modprobe sctp")
	}
}

// both makes the two ends of a connection over loopback.
func both(t testing.TB, over Carrier) (near, far *Conn) {
	t.Helper()
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	near, err = Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return near, c.(*Conn)
}

// noise is n bytes that differ by seed.
func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestBothWays(t *testing.T) { overEach(t, testBothWays) }

func testBothWays(t *testing.T, over Carrier) {
	near, far := both(t, over)
	there, back := noise(rung.Times(4, 20)<<20, 1), noise(rung.Times(1, 5)<<20, 2)
	got := make(chan [32]byte, 2)
	send := func(c *Conn, data []byte) {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(100000))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Error(err)
			}
			rest = rest[n:]
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	receive := func(c *Conn) {
		h := sha256.New()
		if _, err := io.Copy(h, c); err != nil {
			t.Error(err)
		}
		got <- [32]byte(h.Sum(nil))
	}
	go send(near, there)
	go send(far, back)
	go receive(far)
	if <-got != sha256.Sum256(there) {
		t.Error("not the bytes that were sent")
	}
	go receive(near)
	if <-got != sha256.Sum256(back) {
		t.Error("not the bytes that were sent back")
	}
	near.mu.Lock()
	for _, p := range near.paths {
		if rtt := p.wire.packetRTT(); rtt > 10*time.Second || rtt <= 0 && over != SCTP { // SCTP's is in milliseconds
			t.Errorf("packets take %v to the other end and back", rtt)
		}
	}
	near.mu.Unlock()
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	if err := far.Close(); err != nil && !errors.Is(err, ErrClosedByPeer) {
		t.Error(err)
	}
}

// io.Copy to a connection, from readers that give full pieces, odd ones and single bytes, and one that fails.
func TestReadFrom(t *testing.T) {
	near, far := both(t, TCP)
	broken := errors.New("broken")
	data := noise(3*maxPayload+100, 4)
	var want []byte
	got := make(chan []byte)
	go func() { b, _ := io.ReadAll(far); got <- b }()
	for _, c := range []struct {
		r   io.Reader
		n   int
		err error
	}{
		{bytes.NewReader(data), len(data), nil},
		{iotest.HalfReader(bytes.NewReader(data)), len(data), nil},
		{iotest.DataErrReader(bytes.NewReader(data[:maxPayload])), maxPayload, nil},
		{iotest.OneByteReader(bytes.NewReader(data[:500])), 500, nil},
		{io.MultiReader(bytes.NewReader(data[:7]), iotest.ErrReader(broken)), 7, broken},
	} {
		if n, err := near.ReadFrom(c.r); int(n) != c.n || !errors.Is(err, c.err) {
			t.Errorf("%d, %v; want %d, %v", n, err, c.n, c.err)
		}
		want = append(want, data[:c.n]...)
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("%d bytes came, %d were sent, or others", len(b), len(want))
	}
	if n, err := near.ReadFrom(bytes.NewReader(data)); n != 0 || err == nil {
		t.Errorf("after closing: %d, %v", n, err)
	}
}

func TestCloseDeliversWhatWasWritten(t *testing.T) { overEach(t, testCloseDeliversWhatWasWritten) }

func testCloseDeliversWhatWasWritten(t *testing.T, over Carrier) {
	near, far := both(t, over)
	data := noise(3<<20, 3)
	go func() {
		if _, err := near.Write(data); err != nil {
			t.Error(err)
		}
		if err := near.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %d of %d bytes, %v", len(got), len(data), err)
	}
	if _, err := near.Write(data); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

// Several goroutines may wait for the same acknowledgement.
func TestFlushOfSeveral(t *testing.T) {
	near, far := both(t, TCP)
	defer near.Abort()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	if _, err := near.Write(noise(1<<20, 1)); err != nil {
		t.Fatal(err)
	}
	var flushing sync.WaitGroup
	for range 3 {
		flushing.Go(func() {
			if err := near.flush(time.Hour); err != nil { // who is not woken hangs
				t.Error(err)
			}
		})
	}
	flushing.Wait()
}

// Connections share what watches this host's links. The sockets of their paths are theirs.
func TestConnectionsShareTheWatch(t *testing.T) {
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	const conns = 10
	before := files()
	for range conns {
		near, far := both(t, TCP)
		defer near.Abort()
		defer far.Abort()
	}
	if n := files() - before; n > 4*conns {
		t.Errorf("%d connections, each with a listener of its own, have %d open files; want 3 each, and some", conns, n)
	}
}

func TestDeadline(t *testing.T) { overEach(t, testDeadline) }

func testDeadline(t *testing.T, over Carrier) {
	near, _ := both(t, over)
	if err := near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := near.Read(make([]byte, 1))
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("read after the deadline: %v", err)
	}
}

// However all addresses are written, both families are listened on.
func TestListenEverywhere(t *testing.T) { overEach(t, testListenEverywhere) }

func testListenEverywhere(t *testing.T, over Carrier) {
	for _, at := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		a, b := NewKey(), NewKey()
		l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, to := range []string{"127.0.0.1", "::1"} {
			to := netip.AddrPortFrom(netip.MustParseAddr(to), addrPort(l.Addr()).Port()).String()
			conn, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}, to)
			if err != nil {
				t.Errorf("listener at %s: %v", at, err)
				continue
			}
			conn.Abort()
		}
	}
}

// A name has addresses of both families, the listener may have one.
func TestDialTriesEachAddress(t *testing.T) { overEach(t, testDialTriesEachAddress) }

func testDialTriesEachAddress(t *testing.T, over Carrier) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		a, b := NewKey(), NewKey()
		l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := addrPort(l.Addr()).Port()
		both := Peer{Link: "host", Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), netip.AddrPortFrom(netip.IPv6Loopback(), port)}}
		conn, err := DialPeers(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}, []Peer{both})
		if err != nil {
			t.Errorf("listener at %v: %v", l.Addr(), err)
			continue
		}
		conn.Abort()
	}
}

// slowly hands on what comes to an address, each way so much later, and says where it listens.
func slowly(t *testing.T, to string, delay time.Duration) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	type bits struct {
		due  time.Time
		data []byte
	}
	way := func(from, to net.Conn) {
		defer to.Close()
		line := make(chan bits, 1000)
		defer close(line)
		go func() {
			for b := range line {
				time.Sleep(time.Until(b.due))
				_, _ = to.Write(b.data)
			}
		}()
		for b := make([]byte, 1<<16); ; {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			line <- bits{time.Now().Add(delay), bytes.Clone(b[:n])}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			if far, err := net.Dial("tcp", to); err == nil {
				go way(near, far)
				go way(far, near)
			}
		}
	}()
	return l.Addr().String()
}

// Over a satellite or behind a full queue two round trips take more than the first attempt has.
func TestDialSlowLink(t *testing.T) {
	rung.Long(t)
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, slowly(t, l.Addr().String(), 700*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	near.Abort()
}

func TestStrangersAreRefused(t *testing.T) { overEach(t, testStrangersAreRefused) }

func testStrangersAreRefused(t *testing.T, over Carrier) {
	a, b, c := NewKey(), NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for what, cfg := range map[string]*Config{
		"a dialer without the right key":   {Key: c, Peers: []PublicKey{b.Public()}, Carrier: over},
		"a listener without the right key": {Key: a, Peers: []PublicKey{c.Public()}, Carrier: over},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if conn, err := Dial(ctx, cfg, l.Addr().String()); err == nil {
			conn.Close()
			t.Errorf("%s gets a connection", what)
		} else {
			t.Log(err)
		}
		cancel()
	}
}

// A connection that is on its way to Accept when the listener closes is told so.
func TestListenerClosesBeforeAccept(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	for len(l.accepted) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrClosedByPeer) {
		t.Errorf("reading ends with %v, want %v", err, ErrClosedByPeer)
	}
}

// A link that has reached its cap gets no path in later connections: what a handshake takes counts, too.
func TestNoPathOverSpentLink(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := &Config{Key: a, Peers: []PublicKey{b.Public()}, Links: map[string]Policy{"lo": {CapBytes: 2 * maxPayload}}}
	c, err := Dial(t.Context(), cfg, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, 2*maxPayload)); err != nil {
		t.Fatal(err)
	}
	for !cfg.spent("lo") {
		time.Sleep(time.Millisecond)
	}
	c.Abort()
	if c, err := Dial(t.Context(), cfg, l.Addr().String()); err == nil || !strings.Contains(err.Error(), "lo: it has reached its cap") {
		t.Errorf("another connection: %v, %v", c, err)
	}
}

// The dialer keeps to the listener's policies, and hears why nothing goes any more.
func TestListenersPolicy(t *testing.T) {
	rung.Long(t) // it waits for more than 5 s
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Links: map[string]Policy{"lo": {CapBytes: 1 << 20}}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	_, err = c.Write(make([]byte, 4<<20))
	if err == nil {
		err = c.Flush()
	}
	if err == nil || !strings.Contains(err.Error(), "reached their caps") {
		t.Errorf("4 MB over a link with a cap of 1 MB: %v", err)
	}
	if n := c.PeerStats(); len(n) != 1 || n[0].Name != "lo" || n[0].SentBytes > 1<<20 || n[0].SentBytes < 1<<20-2*maxPayload {
		t.Errorf("%+v; want lo with nearly 1 MB", n)
	}
}

func TestTooManyConnections(t *testing.T) { overEach(t, testTooManyConnections) }

func testTooManyConnections(t *testing.T, over Carrier) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, MaxConns: 1, Carrier: over}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}
	first, err := Dial(t.Context(), cfg, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Abort()
	if second, err := Dial(t.Context(), cfg, l.Addr().String()); err == nil || !strings.Contains(err.Error(), "too many connections") {
		t.Errorf("a second one: %v, %v", second, err)
	}
}
