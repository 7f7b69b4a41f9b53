package stripe

import (
	"io"
	"net/netip"
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
	if len(accepted) > 0 {
		t.Error("the other host has a connection, too")
	}
}
