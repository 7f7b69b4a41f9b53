package stripe

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// mortal is a dialer's socket that can be closed, or fall silent, with nothing said to the peer.
type mortal struct {
	*net.UDPConn
	silent atomic.Bool
}

func (m *mortal) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	if m.silent.Load() {
		return len(b), len(oob), nil
	}
	return m.UDPConn.WriteMsgUDP(b, oob, to)
}

// reaches dials with the patience of a listener and many signs of life, says a byte and returns the socket and the listener's end.
func reaches(t *testing.T, l acceptor, conf *tls.Config) (*mortal, *opened) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	to := net.UDPAddrFromAddrPort(addrPort(l.Addr()))
	if to.IP.IsUnspecified() {
		to.IP = net.IPv4(127, 0, 0, 1)
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: to.IP})
	must(err)
	m := &mortal{UDPConn: udp}
	dialer := &quic.Transport{Conn: m}
	t.Cleanup(func() { dialer.Close(); udp.Close() })
	conn, err := dialer.Dial(t.Context(), to, conf, &quic.Config{MaxIdleTimeout: quicIdle, KeepAlivePeriod: 300 * time.Millisecond})
	must(err)
	stream, err := conn.OpenStream()
	must(err)
	_, err = stream.Write([]byte{1})
	must(err)
	came, err := l.accept()
	must(err)
	far, err := came.open(t.Context())
	must(err)
	_, err = far.Read(make([]byte, 1))
	must(err)
	return m, far
}

// A QUIC peer whose process is gone says nothing. After the silence the listener knows by what the peer's host said; of who is only silent, or alive, it takes nothing of the kind.
func TestQUICPeerDies(t *testing.T) {
	rung.Long(t)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			key := NewKey()
			conf, err := tlsConfig(&Config{Key: key, Peers: []PublicKey{key.Public()}})
			if err != nil {
				t.Fatal(err)
			}
			l, err := quicCarrier{}.listen(at, conf)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, alive := reaches(t, l, conf)
			silent, silentFar := reaches(t, l, conf)
			dead, deadFar := reaches(t, l, conf)
			dead.Close()
			silent.silent.Store(true)
			_, err = deadFar.Read(make([]byte, 1))
			if !errors.Is(err, errGone) {
				t.Errorf("of the dead: %v", err)
			}
			var idle *quic.IdleTimeoutError
			if _, err = silentFar.Read(make([]byte, 1)); !errors.As(err, &idle) || errors.Is(err, errGone) {
				t.Errorf("of the silent: %v", err)
			}
			// The living has said nothing but signs of life for longer than the patience by now.
			if err := alive.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			var late net.Error
			if _, err = alive.Read(make([]byte, 1)); !errors.As(err, &late) || !late.Timeout() || errors.As(err, &idle) {
				t.Errorf("of the living: %v", err)
			}
		})
	}
}

// Who lives closes its socket when it has heard nothing for as long as the listener: only who is refused from the beginning of the silence has died.
func TestDied(t *testing.T) {
	peer := netip.MustParseAddrPort("[fe80::1%eth0]:5")
	for name, c := range map[string]struct {
		first, last time.Duration // ago
		want        bool
	}{
		"all the time":          {9 * time.Second, time.Second, true},
		"at the end":            {2 * time.Second, time.Second, false},
		"before the silence":    {20 * time.Second, 9 * time.Second, false},
		"of another one's time": {time.Hour, 59 * time.Minute, false},
	} {
		now := time.Now()
		r := &refusals{when: map[netip.AddrPort]refusal{netip.MustParseAddrPort("[fe80::1]:5"): {now.Add(-c.first), now.Add(-c.last)}}}
		if got := r.died(peer); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (&refusals{}).died(peer) {
		t.Error("never refused")
	}
}

// A listener that sends into a queue of its own host's that is too short loses packets, as it would elsewhere, and no connection.
func TestQUICListenerOverrunsItsQueue(t *testing.T) {
	w := newWorld(t, QUIC, 1, "20mbit")
	w.run("tc", "-n", w.server, "qdisc", "replace", "dev", "s0", "root", "tbf", "rate", "20mbit", "burst", "4k", "limit", "12k")
	key := NewKey()
	conf, err := tlsConfig(&Config{Key: key, Peers: []PublicKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	var l acceptor
	if err := netns.Do(w.server, func() (err error) {
		l, err = quicCarrier{}.listen(":0", conf)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		came, err := l.accept()
		if err != nil {
			sent <- err
			return
		}
		far, err := came.open(t.Context())
		if err == nil {
			err = far.writeAll([][]byte{make([]byte, size)})
		}
		sent <- err
	}()
	var near *opened
	if err := netns.Do(w.client, func() (err error) {
		near, err = quicCarrier{}.dial(t.Context(), source{addr: netip.MustParseAddr("10.78.0.1")}, netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), addrPort(l.Addr()).Port()), conf)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := near.writeAll([][]byte{{1}}); err != nil { // a stream is told of with its first byte
		t.Fatal(err)
	}
	n, err := io.CopyN(io.Discard, near, size)
	if err := errors.Join(err, <-sent); err != nil {
		t.Errorf("%d of %d bytes came: %v", n, size, err)
	}
}
