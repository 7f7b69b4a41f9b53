package stripe

import (
	"net"
	"net/netip"
	"testing"
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
	}{{"192.0.2.1", 128}, {"::ffff:192.0.2.1", 0}, {"2001:db8:1:2::3", 64}, {"2001:db8:1:4::5", 0}, {"2001:db8:2::1", 32}, {"192.0.2.2", 16}} {
		if n := fill(c.addr); n != c.want {
			t.Errorf("%d of %s find room, want %d", n, c.addr, c.want)
		}
	}
	for range 128 {
		g.leave(netip.MustParseAddr("192.0.2.1"))
	}
	if n := fill("192.0.2.3"); g.count() != 240-128+n || n != 72 || len(g.of) != 4 {
		t.Errorf("%d find room, of %d origins, where 128 have left", n, len(g.of))
	}
}
