package stripe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// natted is TCP through a NAT that can forget its connections, and is slow then.
type natted struct {
	tcpCarrier
	mu   sync.Mutex
	near []*net.TCPConn // its ends of connections, towards the dialer
	far  []net.Conn     // the others, which stay open
	slow time.Duration
}

func (n *natted) dial(ctx context.Context, from source, to netip.AddrPort, conf *tls.Config) (*opened, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	go func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		time.Sleep(slow)
		far, err := net.Dial("tcp", to.String())
		if err != nil {
			near.Close()
			return
		}
		n.mu.Lock()
		n.near, n.far = append(n.near, near.(*net.TCPConn)), append(n.far, far)
		n.mu.Unlock()
		go func() { _, _ = io.Copy(near, far) }()
		_, _ = io.Copy(far, near)
	}()
	return n.tcpCarrier.dial(ctx, from, addrPort(l.Addr()), conf)
}

func (n *natted) forget(slow time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.near {
		_ = c.SetLinger(0)
		c.Close()
	}
	n.near, n.slow = nil, slow
}

// The only path is reset on the way, and a new one takes long: the peer lives, and so does the session.
func TestResetOnTheWay(t *testing.T) {
	for _, slow := range []time.Duration{1500 * time.Millisecond, 3 * time.Second} {
		nat, over := &natted{}, Carrier("natted "+slow.String())
		carriers[over] = nat
		t.Run(slow.String(), func(t *testing.T) {
			t.Parallel()
			a, b := NewKey(), NewKey()
			l, err := Listen(&Config{Key: b, Peers: []PublicKey{a.Public()}, Carrier: over}, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			near, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer near.Abort()
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.(*Conn).Abort()
			_ = far.SetReadDeadline(time.Now().Add(30 * time.Second))
			for what := range byte(2) {
				_, err := near.Write([]byte{what})
				got := make([]byte, 1)
				_, bad := io.ReadFull(far, got)
				if err = errors.Join(err, bad); err != nil || got[0] != what {
					t.Errorf("%v comes, %v; want %d", got, err, what)
				}
				nat.forget(slow)
			}
		})
	}
}

// The peer's process dies, its host lives: that is known within seconds, whatever the carrier.
func TestPeerIsKilled(t *testing.T) {
	for _, over := range carriersHere() {
		t.Run(string(over), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "STRIPE_TEST_ROLE=listen", "STRIPE_TEST_OVER="+string(over))
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			var far report
			if err := json.NewDecoder(out).Decode(&far); err != nil {
				t.Fatal(err)
			}
			a, b := roleKeys()
			near, err := Dial(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}, Carrier: over}, fmt.Sprint("127.0.0.1:", far.Peers[0].Addrs[0].Port()))
			if err != nil {
				t.Fatal(err)
			}
			defer near.Abort()
			time.Sleep(300 * time.Millisecond) // the ends meet
			_ = cmd.Process.Kill()
			start := time.Now()
			_ = near.SetReadDeadline(start.Add(30 * time.Second))
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, ErrNoPath) {
				t.Errorf("after %v: %v; want %v", time.Since(start), err, ErrNoPath)
			}
			t.Log(time.Since(start))
		})
	}
}

// Nobody is there only if every pair that has worked is refused, where it worked, again and again.
func TestRefused(t *testing.T) {
	const at, other = "192.0.2.1:1", "192.0.2.2:1"
	refused, late := func(to string) error {
		return &attemptError{&reason{"", fmt.Errorf("dial: %w", syscall.ECONNREFUSED)}, netip.MustParseAddrPort(to)}
	}, error(&attemptError{context.DeadlineExceeded, netip.MustParseAddrPort(at)})
	for name, c := range map[string]struct {
		first, second []error // a second apart; nil: it works. None: no pair that has worked
		want          time.Duration
	}{
		"no link":                {nil, nil, 0},
		"one":                    {[]error{refused(at), refused(at), refused(at)}, nil, 2 * time.Second},
		"both":                   {[]error{refused(at), refused(at), refused(at)}, []error{late, refused(at), refused(at)}, time.Second},
		"the other is silent":    {[]error{refused(at), refused(at), refused(at)}, []error{late, late, late}, 0},
		"the other works":        {[]error{refused(at), refused(at), refused(at)}, []error{refused(at), refused(at), nil}, 0},
		"without some answers":   {[]error{refused(at), late, refused(at), late}, nil, 2 * time.Second},
		"refused long ago":       {[]error{refused(at), refused(at), late, late, late}, nil, 0},
		"refused after a pause":  {[]error{refused(at), late, late, refused(at)}, nil, 0},
		"once":                   {[]error{refused(at)}, nil, 0},
		"worked meanwhile":       {[]error{refused(at), refused(at), nil, refused(at), refused(at)}, nil, time.Second},
		"at another address":     {[]error{refused(other), refused(other), refused(other)}, nil, 0},
		"at another and at this": {[]error{refused(at), refused(other), refused(at), refused(other)}, nil, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dialer{c: newConn([16]byte{}, PublicKey{}, &Config{}), changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}, targets: map[pair]*target{{"never", "far"}: {tries: []try{{}}}}}
				p := &path{wire: &simWire{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at))}}
				for i := range max(len(c.first), len(c.second)) {
					for link, errs := range map[string][]error{"a": c.first, "b": c.second} {
						between := pair{link, "far"}
						if i == 0 && len(errs) > 0 {
							d.targets[between] = &target{tries: []try{{}}, path: p}
						}
						if i < len(errs) {
							d.note(between, d.targets[between], p, errs[i])
						}
					}
					time.Sleep(time.Second)
				}
				if got := d.refused(); got != c.want {
					t.Errorf("refused for %v, want %v", got, c.want)
				}
			})
		})
	}
}

// Over one link two pairs are refused in turn, as where ICMP messages are few.
func TestRefusedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := netip.MustParseAddrPort("192.0.2.1:1")
		d := &dialer{c: newConn([16]byte{}, PublicKey{}, &Config{}), changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}, targets: map[pair]*target{}}
		p := &path{wire: &simWire{addr: net.TCPAddrFromAddrPort(at)}}
		both := []pair{{"a", "far"}, {"a", "other"}}
		for _, between := range both {
			d.targets[between] = &target{tries: []try{{}}, path: p}
		}
		for i := range 4 {
			d.note(both[i%2], d.targets[both[i%2]], p, &attemptError{syscall.ECONNREFUSED, at})
			time.Sleep(1500 * time.Millisecond)
		}
		if got := d.refused(); got != 4500*time.Millisecond {
			t.Errorf("refused for %v, want 4.5s", got)
		}
	})
}

// A dialer whose last link goes may have a new one much later than a peer is waited for that has died. What ends with the link says so, as far as it gets.
func TestPeerMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		time.Sleep(100 * time.Millisecond) // the ends meet
		s.near.mu.Lock()
		p := s.near.paths[1]
		s.near.mu.Unlock()
		p.end(errLinkGone)
		time.AfterFunc(defaultPatience/2, func() { s.add(t, simPath{mbps: 8, delay: 15e6, queue: 75000}) })
		if took, _ := s.transfer(t, 1000); took < defaultPatience/2 {
			t.Errorf("after %v", took)
		}
	})
}
