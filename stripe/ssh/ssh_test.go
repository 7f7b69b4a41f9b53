package ssh

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
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

// The address ssh uses is tried, too, unless it is of a link that is not to be used.
func TestWithName(t *testing.T) {
	eth0, nat := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.1")
	links := []stripe.Link{{Name: "eth0", Addrs: []netip.Prefix{netip.PrefixFrom(eth0, 24)}}, {Name: "eth1"}}
	told := []stripe.Peer{{Link: "eth1", Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.3.1:7788")}}}
	for _, c := range []struct {
		named map[string]stripe.Policy
		own   netip.Addr
		want  int
	}{{nil, nat, 2}, {nil, eth0, 2}, {map[string]stripe.Policy{"eth1": {}}, nat, 2}, {map[string]stripe.Policy{"eth1": {}}, eth0, 1}} {
		own := stripe.Peer{Link: "host", Addrs: []netip.AddrPort{netip.AddrPortFrom(c.own, 0)}}
		if got := withName(told, own, others(c.named, links), nil); len(got) != c.want {
			t.Errorf("of links %v and %v: %v, want %d", c.named, c.own, got, c.want)
		}
	}
}

// A far side that has no address but loopback, as over a cable with link-local ones alone, is this host or not reached: nobody listens at the loopback address of this one.
func TestFarLoopback(t *testing.T) {
	addr := func(a string) stripe.Peer {
		return stripe.Peer{Link: "host", Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(a), 0)}}
	}
	here := []stripe.Link{{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}, {Name: "lo", Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}}
	for _, c := range []struct {
		own  stripe.Peer // that ssh uses
		want string
	}{{stripe.Peer{}, "127.0.0.1:7788"}, {addr("127.0.0.1"), "127.0.0.1:7788"}, {addr("192.0.2.1"), "127.0.0.1:7788 192.0.2.1:7788"}, {addr("fe80::2%eth0"), ""}, {addr("203.0.113.1"), "203.0.113.1:7788"}} {
		var got []string
		for _, p := range withName([]stripe.Peer{{Link: "lo", Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7788")}}}, c.own, nil, here) {
			for _, a := range p.Addrs {
				got = append(got, a.String())
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("by %v: %v, want %s", c.own.Addrs, got, c.want)
		}
	}
}

// A far link that is not there ends it before anything is sent, as one of this host does.
func TestNoSuchFarLink(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = Serve(far, far, Handler{}) }()
	_, err := ask(near, near, offer{Key: stripe.NewKey().Public(), Links: map[string]stripe.Policy{"gone0": {}}})
	if !errors.As(err, new(*LinkError)) || !strings.HasPrefix(err.Error(), "far link gone0: ") {
		t.Errorf("%v; want that gone0 is not there", err)
	}
}

// What the far side says cannot command the terminal.
func TestAnswerIsPrintable(t *testing.T) {
	for _, no := range []answer{{Error: "no\x1b]0;title\a\nplait: all is well"}, {Error: "no\x1b]0;title\a\nplait: all is well", NoLink: true}} {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			_, _ = bufio.NewReader(far).ReadSlice('\n')
			_ = send(far, no)
		}()
		if _, err := ask(near, near, offer{Key: stripe.NewKey().Public()}); err == nil || err.Error() != "no?]0;title??plait: all is well" {
			t.Errorf("%q", err)
		}
	}
}

// Where the far side cannot listen, it says what to do: the port may be that of an interrupted copy, the address one that only a NAT has.
func TestCannotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for at, want := range map[string]string{l.Addr().String(): "another port", "192.0.2.1:7788": "the port alone"} {
		near, far := net.Pipe()
		defer near.Close()
		go func() { _ = Serve(far, far, Handler{}) }()
		if _, err := ask(near, near, offer{Key: stripe.NewKey().Public(), Listen: at}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen at %s: %v; want %s", at, err, want)
		}
	}
}

// When the near side gives up it says why itself; what the far side said would come before that.
func TestNearSideGivesUp(t *testing.T) {
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(far, far, Handler{}) }()
	_, err := ask(near, near, offer{Key: stripe.NewKey().Public()})
	near.Close()
	if err := errors.Join(err, <-ended); err != nil {
		t.Error(err)
	}
}

// A far side that tells of links without end is not heard to the end: each {} of three bytes would be a struct in memory.
func TestEndlessAnswer(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	said := make(chan int)
	go func() {
		_, _ = bufio.NewReader(far).ReadSlice('\n')
		n, _ := far.Write([]byte(mark + `{"Peers":[` + strings.Repeat("{},", maxText/4) + `{}]}` + "\n"))
		said <- n
	}()
	a, err := ask(near, near, offer{Key: stripe.NewKey().Public()})
	near.Close()
	if n := <-said; err == nil || n > 2*maxAnswer {
		t.Errorf("%d links in %d bytes are taken, %v", len(a.Peers), n, err)
	}
}

// Start-up files of the far side's shell print what they like, a prompt or the terminal's title without an end of the line, too. The answer is found behind it.
func TestAnswerBehindBanner(t *testing.T) {
	for _, banner := range []string{"welcome\n", "\x1b]0;title\a", "welcome\nsay> "} {
		var got answer
		if err := receive(bufio.NewReader(strings.NewReader(banner+mark+`{"Error":"no"}`+"\n")), &got, maxAnswer); err != nil || got.Error != "no" {
			t.Errorf("behind %q: %+v, %v", banner, got, err)
		}
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var dialing sync.WaitGroup
	for range 3 * maxDials {
		dialing.Go(func() {
			if _, err := f.Dial(ctx); err == nil {
				t.Error("connected with nobody")
			}
		})
	}
	for len(arrived) < maxDials && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // for one more to arrive
	cancel()
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

// Ctrl-C on a terminal is for ssh, too, which may end before this process has heard of it.
func TestSSHIsInterruptedFirst(t *testing.T) {
	interrupted := errors.New("interrupted")
	try := func(end string) error {
		ctx, interrupt := context.WithCancelCause(t.Context())
		defer interrupt(nil)
		begun := filepath.Join(t.TempDir(), "begun")
		go func() {
			for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond)
			interrupt(interrupted)
		}()
		script := `[ "$0" = -T ] || exit; touch ` + begun + `; ` + end
		_, err := Start(ctx, "host", Options{Command: []string{"sh", "-c", script}})
		return err
	}
	for _, end := range []string{"kill -INT $$", "exit 255"} { // before and after there is a connection
		err := try(end)
		for tries := 1; tries < 10 && !errors.Is(err, interrupted); tries++ { // where this process has no processor for heedTime it is too late
			err = try(end)
		}
		if !errors.Is(err, interrupted) {
			t.Errorf("%s: %v", end, err)
		}
	}
}

// The ssh command may be a script that waits for ssh, which the end of the script does not end: nobody waits for that one where it hangs.
func TestSSHInAScriptHangs(t *testing.T) {
	rung.Long(t)
	ctx, interrupt := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer interrupt()
	script := `[ "$0" = -T ] || exit; sh -c 'for i in $(seq 100); do [ -d ` + t.TempDir() + ` ] || exit; sleep 0.1; done'; true`
	begun := time.Now()
	if _, err := Start(ctx, "host", Options{Command: []string{"sh", "-c", script}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it was waited for: %v", took)
	}
}

// A shell that has no plait to run says so by 126 or 127, csh by 1, which plait may end with, too: both are named.
func TestNoPlaitThere(t *testing.T) {
	for _, status := range []int{1, 126, 127} {
		if err := said(status, "ssh", "plait", "host", nil); !strings.Contains(err.Error(), "--remote-plait") {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
