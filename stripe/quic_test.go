package stripe

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"plait.dev/plait/internal/rung"
)

// What is said when UDP does not get through, and when nobody listens.
func TestQUICSaysWhatIsWrong(t *testing.T) {
	rung.Long(t)
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	cfg := &Config{Key: NewKey(), Peers: []PublicKey{NewKey().Public()}, Carrier: QUIC}
	for to, want := range map[string]string{mute.LocalAddr().String(): "may block UDP; carrier tcp is blocked less often", nobody.LocalAddr().String(): ", or a firewall refuses UDP"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if conn, err := Dial(ctx, cfg, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", conn, err, want)
		}
		cancel()
	}
}

// The socket of a closed listener carries the connections there are, takes no more, and is closed with the last one.
func TestQUICListenerCloses(t *testing.T) {
	a, b := NewKey(), NewKey()
	l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: QUIC}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: QUIC}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	go func() { _, _ = near.Write([]byte("still here")); near.Close() }()
	buf := make([]byte, 10)
	if n, err := far.Read(buf); err != nil || string(buf[:n]) != "still here" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	far.Close()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		again, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			again.Close()
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
}

// Strangers' handshakes are bounded, by their addresses too, and room comes back when they end.
func TestQUICHandshakesAreBounded(t *testing.T) {
	a := &quicAcceptor{}
	ctx, end := context.WithCancel(t.Context())
	stranger := &quic.ClientInfo{RemoteAddr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}}
	for range maxGreeting / 2 {
		if _, err := a.greet(ctx, stranger); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.greet(ctx, stranger); err == nil {
		t.Error("one more is let in")
	}
	if _, err := a.greet(ctx, &quic.ClientInfo{RemoteAddr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1}}); err != nil {
		t.Errorf("another address: %v", err)
	}
	end()
	for start := time.Now(); a.greeting.count() > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("room does not come back")
		}
	}
}
