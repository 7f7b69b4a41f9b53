package stripe

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// A stranger who says nothing keeps those out that come from where he does, and nobody else: a listener that lives for long would be his for as long as he goes on.
func TestSilentStranger(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range maxGreeting + 10 {
		c, err := stranger.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
}

// Room is there again when a dialer is known, and when it is not: a listener would have none after a day otherwise.
func TestGreetersLeave(t *testing.T) {
	for _, over := range carriersHere() {
		a, b := NewKey(), NewKey()
		l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range 3 {
			for i, key := range []PrivateKey{a, NewKey()} {
				c, err := Dial(t.Context(), &Config{Key: key, Peers: []PublicKey{b.Public()}, Carrier: over}, l.Addr().String())
				if (err == nil) != (i == 0) {
					t.Fatalf("%s: %v", over, err)
				}
				if err == nil {
					c.Abort()
				}
			}
		}
		still := func() int {
			n := l.greeting.count()
			if q, is := l.in.(*quicAcceptor); is {
				n += q.greeting.count()
			}
			return n
		}
		for start := time.Now(); still() > 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("%s: %d are still taken for unknown", over, still())
			}
		}
	}
}

// An origin has room as long as it has less than is left; those of one IPv6 site are one.
func TestGreeters(t *testing.T) {
	var g greeters
	fill := func(addr string) (n int) {
		for g.enter(netip.MustParseAddr(addr)) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		addr string
		want int
	}{{"192.0.2.1", 128}, {"::ffff:192.0.2.1", 0}, {"2001:db8:1:2::3", 64}, {"2001:db8:1:4::5", 0}, {"2001:db8:2::1", 32}, {"64:ff9b::c000:203", 16}, {"64:ff9b::c000:204", 8}} {
		if n := fill(c.addr); n != c.want {
			t.Errorf("%d of %s find room, want %d", n, c.addr, c.want)
		}
	}
	for range 128 {
		g.leave(netip.MustParseAddr("192.0.2.1"))
	}
	if n := fill("192.0.2.3"); g.count() != 248-128+n || n != 68 || len(g.of) != 5 {
		t.Errorf("%d find room, of %d origins, where 128 have left", n, len(g.of))
	}
}
