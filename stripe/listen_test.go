package stripe

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

// closing is an acceptor whose listener is closed just as somebody has arrived.
type closing struct {
	acceptor
	listener *Listener
}

func (a closing) accept() (caller, error) {
	conn, err := a.acceptor.accept()
	a.listener.Close()
	return conn, err
}

// Who arrives while the listener closes is hung up on: nobody would ever look after the connection, and with QUIC the socket would stay as long as that.
func TestArrivesWhileListenerCloses(t *testing.T) { overEach(t, testArrivesWhileListenerCloses) }

func testArrivesWhileListenerCloses(t *testing.T, over Carrier) {
	a, b := NewKey(), NewKey()
	cfg := &Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}
	conf, err := cfg.check()
	if err != nil {
		t.Fatal(err)
	}
	in, err := carriers[over].listen("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	l := &Listener{cfg: cfg, greeting: make(chan struct{}, 1), stop: stop, done: ctx.Done()}
	l.in = closing{in, l}
	ended := make(chan struct{})
	go func() { l.runAccept(ctx); close(ended) }()
	near := &Config{Key: a, Peers: []PublicKey{b.Public()}}
	if conf, err = near.check(); err != nil {
		t.Fatal(err)
	}
	dialing, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	w, err := carriers[over].dial(dialing, source{link: "lo", addr: netip.MustParseAddr("127.0.0.1")}, addrPort(in.Addr()), conf)
	if err == nil {
		defer w.Close()
		_ = w.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = w.Write([]byte{0}) // QUIC's stream begins with it
		_, err = w.Read(make([]byte, 1))
	}
	if late(err) {
		t.Errorf("it is left waiting: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("more are waited for")
	}
}
