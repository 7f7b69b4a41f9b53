package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"plait.dev/plait/stripe"
)

// A program has sent all it has to say, and is gone. Its target, which says nothing, is let go with the connection.
func TestSilentTargetIsLetGo(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a, b := stripe.NewKey(), stripe.NewKey()
	l, err := stripe.Listen(&stripe.Config{Key: b, Peers: []stripe.PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := l.Accept(); err == nil {
			Serve(conn)
		}
	}()
	near, err := stripe.Dial(t.Context(), &stripe.Config{Key: a, Peers: []stripe.PublicKey{b.Public()}}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	err = writeText(near, listener.Addr().String())
	target, bad := listener.Accept()
	if err = errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if answer, err := readText(near); answer != "" || err != nil {
		t.Fatal(answer, err)
	}
	_, err = io.WriteString(near, "request")
	if err = errors.Join(err, near.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(target); string(got) != "request" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	near.Abort()
	select {
	case <-served:
	case <-time.After(30 * time.Second):
		t.Error("the far side still waits for the target")
	}
}
