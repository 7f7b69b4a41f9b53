package stripe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// A NAT has one name, and a port for each of several links behind it, of which one may be away.
func TestDialPortsOfOneHost(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, addrs := range [][]string{{"127.0.0.1:1", l.Addr().String()}, {l.Addr().String(), "127.0.0.1:1"}} {
		conn, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, addrs...)
		if err != nil {
			t.Errorf("%v: %v", addrs, err)
			continue
		}
		conn.Abort()
	}
	if peers, err := resolve(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2"}); err != nil || len(peers) != 2 || peers[0].Link == peers[1].Link {
		t.Errorf("%v, %v; want a link for each address", peers, err)
	}
}

// What a program knows of a peer may come from a socket for both families, which writes IPv4 addresses as IPv6 ones.
func TestDialMappedAddress(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := addrPort(l.Addr())
	mapped := netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := DialPeers(ctx, &Config{Key: a, Peers: []PublicKey{b.Public()}}, []Peer{{Link: "nat", Addrs: []netip.AddrPort{mapped}}})
	if err != nil {
		t.Fatalf("%v: %v", mapped, err)
	}
	conn.Abort()
}

// Patience is for the time between paths. The first one is waited for as long as Dial may.
func TestDialOutlastsPatience(t *testing.T) {
	t.Parallel()
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	const patience = 300 * time.Millisecond
	go func() {
		for in, err := late.Accept(); err == nil; in, err = late.Accept() {
			go func() {
				defer in.Close()
				time.Sleep(3 * patience)
				out, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(in, out) }()
				_, _ = io.Copy(out, in)
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := Dial(ctx, &Config{Key: a, Peers: []PublicKey{b.Public()}, Patience: patience}, late.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Abort()
}

// A listener that gives its link one name after the other has a path made for each, and fills no memory with those that were.
func TestListenerRenamesItsLink(t *testing.T) {
	d := &dialer{c: &Conn{}, changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}}
	for i := range 10 * maxPaths {
		between, now := pair{"a", fmt.Sprint(i)}, &target{}
		d.targets = map[pair]*target{between: now}
		d.note(between, now, &path{}, nil)
		if d.had[between] == nil || len(d.had) > maxPaths {
			t.Fatalf("after %d names %d paths are kept, the last one: %v", i+1, len(d.had), d.had[between] != nil)
		}
	}
}

// Addresses that a far side makes up cost no more time than those that one may have.
func TestPeerTellsTooManyLinks(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peers := l.Peers()
	for i := range 20000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 1)
		peers = append(peers, Peer{Link: at.String(), Addrs: slices.Repeat([]netip.AddrPort{at}, 100)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := DialPeers(ctx, &Config{Key: a, Peers: []PublicKey{b.Public()}}, peers)
	if err != nil {
		t.Fatal(len(err.Error()))
	}
	defer conn.Abort()
	if n := len(conn.PeerStats()); n > maxPeers+1 {
		t.Errorf("paths to %d links are tried", n)
	}
}
