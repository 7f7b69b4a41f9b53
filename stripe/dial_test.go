package stripe

import (
	"fmt"
	"testing"
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
