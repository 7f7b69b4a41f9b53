package ssh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"plait.dev/plait/stripe"
)

// The far side may say that it has links without addresses.
func TestPort(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7788")}
	if got := port([]stripe.Peer{{Link: "nowhere"}, {Link: "eth0", Addrs: at}}); got != 7788 {
		t.Errorf("port %d, want 7788", got)
	}
	if got := port([]stripe.Peer{{Link: "nowhere"}}); got != 0 {
		t.Errorf("port %d of no address", got)
	}
}

// A crawler begins very many connections at once. The far side greets some; the others wait for their turn.
func TestDialsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	arrived := make(chan net.Conn, 4*maxDials)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			arrived <- c // it hears nothing
		}
	}()
	key := stripe.NewKey()
	f := &Far{cfg: &stripe.Config{Key: key, Peers: []stripe.PublicKey{key.Public()}}, dials: make(chan struct{}, maxDials),
		peers: []stripe.Peer{{Link: "lo", Addrs: []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())}}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var dialing sync.WaitGroup
	for range 3 * maxDials {
		dialing.Go(func() {
			if _, err := f.Dial(ctx); err == nil {
				t.Error("connected with nobody")
			}
		})
	}
	dialing.Wait()
	if n := len(arrived); n == 0 || n > maxDials {
		t.Errorf("%d connections were begun at once, want %d at most", n, maxDials)
	}
	for range len(arrived) {
		(<-arrived).Close()
	}
}

// An ssh that is interrupted while it asks for a password can turn on the terminal's echo again.
func TestSSHIsAskedToEnd(t *testing.T) {
	dir := t.TempDir()
	begun, restored := filepath.Join(dir, "begun"), filepath.Join(dir, "restored")
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
			time.Sleep(10 * time.Millisecond)
		}
		interrupt()
	}()
	script := `[ "$0" = -T ] || exit; trap "touch ` + restored + `; exit 1" TERM; touch ` + begun + `; while :; do sleep 0.1; done`
	if _, err := Start(ctx, "host", Options{Command: []string{"sh", "-c", script}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(restored); err != nil {
		t.Errorf("it was killed: %v", err)
	}
}
