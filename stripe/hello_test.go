package stripe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Two hosts whose keys are both allowed are still two: a connection is with the one that answers first, and a path that leads to the other, whose addresses
// are the same ones in another network, say, neither joins the connection nor ends it.
func TestPathsLeadToOneHost(t *testing.T) {
	t.Parallel()
	a, b, c := NewKey(), NewKey(), NewKey()
	var peers []Peer
	accepted := make(chan *Conn, 2)
	for name, key := range map[string]PrivateKey{"b": b, "c": c} {
		l, err := Listen(&Config{Key: key, Peers: []PublicKey{a.Public()}}, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		peers = append(peers, Peer{Link: name, Addrs: []netip.AddrPort{addrPort(l.Addr())}})
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- conn.(*Conn)
			}
		}()
	}
	near, err := DialPeers(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public(), c.Public()}}, peers)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-near.Done():
	case <-time.After(time.Second): // for the other path to be tried
	}
	go func() { _, _ = near.Write([]byte("to one")); near.Close() }()
	far := <-accepted
	if got, err := io.ReadAll(far); err != nil || string(got) != "to one" {
		t.Errorf("%q, %v", got, err)
	}
	far.Close()
	select {
	case <-accepted:
		t.Error("the other host has a connection, too")
	case <-time.After(500 * time.Millisecond):
	}
}

// A dialer that the listener does not know hears that it is its key, whatever the carrier; not that a certificate is bad.
func TestKeyIsNotAccepted(t *testing.T) {
	t.Parallel()
	for _, over := range []Carrier{TCP, QUIC} {
		a, b := NewKey(), NewKey()
		l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, err = Dial(t.Context(), &Config{Key: NewKey(), Peers: []PublicKey{b.Public()}, Carrier: over}, l.Addr().String())
		if err == nil || !strings.Contains(err.Error(), "the peer does not accept this end's key") {
			t.Errorf("%s: %v", over, err)
		}
	}
}

// Who gives up before any attempt has failed hears that, and nothing that is not so.
func TestDialIsGivenUp(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	a, b := NewKey(), NewKey()
	cfg := &Config{Key: a, Peers: []PublicKey{b.Public()}}
	for _, after := range []time.Duration{0, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		if _, err := Dial(ctx, cfg, deaf.Addr().String()); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "family") {
			t.Errorf("given up after %v: %v", after, err)
		}
	}
	if _, err := DialPeers(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), "no link of this host has an address of the same family") {
		t.Errorf("to no address: %v", err)
	}
}
