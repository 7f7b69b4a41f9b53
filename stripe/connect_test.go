package stripe

import (
	"context"
	"crypto/tls"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deafCarrier is of networks that answer nothing.
type deafCarrier struct {
	carrier
	mu         sync.Mutex
	begun      []time.Time
	open, most int
	patient    int // attempts of connectTimeMax, which are not counted with the others
}

func (c *deafCarrier) dial(ctx context.Context, _ source, _ netip.AddrPort, _ *tls.Config) (*opened, error) {
	c.mu.Lock()
	if by, _ := ctx.Deadline(); time.Until(by) > 2*connectTime {
		c.patient++
		c.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.begun = append(c.begun, time.Now())
	c.open++
	c.most = max(c.most, c.open)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	return nil, ctx.Err()
}

// While no path works, attempts to connect overlap: what leaves before a link is back is lost, and the next one must follow soon. As long as
// another path works, and may carry anything, there is no such hurry.
func TestAttemptsOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		other       *Policy // of a path that works
		least, most time.Duration
		open        int
	}{
		"no path":            {nil, 300 * time.Millisecond, 400 * time.Millisecond, rivalsMax},
		"another path":       {&Policy{}, time.Second, 1300 * time.Millisecond, 1},
		"another at its cap": {&Policy{CapBytes: 1}, 300 * time.Millisecond, 400 * time.Millisecond, rivalsMax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				deaf := &deafCarrier{}
				carriers["deaf"] = deaf
				defer delete(carriers, "deaf")
				s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
				defer s.close()
				lost := &target{tries: []try{{}}, path: s.near.paths[1], retry: newSignal()}
				lost.path.end(errPathLost)
				d := &dialer{c: s.near, cfg: &Config{Carrier: "deaf"}, changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}, targets: map[pair]*target{{"a", "far"}: lost}}
				if c.other != nil {
					s.add(t, simPath{mbps: 8, delay: 15e6, queue: 75000, policy: *c.other})
					d.targets[pair{"b", "far"}] = &target{works: true, path: s.near.paths[2]}
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				d.runPair(ctx, pair{"a", "far"}, lost)
				synctest.Wait()
				for i := 1; i < len(deaf.begun); i++ {
					if gap := deaf.begun[i].Sub(deaf.begun[i-1]); gap < c.least || gap > c.most {
						t.Fatalf("attempt %d follows after %v; want %v to %v", i, gap, c.least, c.most)
					}
				}
				if deaf.patient < 5 || deaf.patient > 7 {
					t.Errorf("%d attempts of %v in a minute; want one after the other", deaf.patient, connectTimeMax)
				}
				if deaf.most != c.open || deaf.open != 0 {
					t.Errorf("%d were open at a time, %d still are; want %d and none", deaf.most, deaf.open, c.open)
				}
			})
		})
	}
}

// slowCarrier answers after a while, and fails until then.
type slowCarrier struct {
	carrier
	takes time.Duration
}

func (c *slowCarrier) dial(ctx context.Context, _ source, _ netip.AddrPort, _ *tls.Config) (*opened, error) {
	select {
	case <-time.After(c.takes):
		near, _ := simLink(8, 15e6, 75000)
		return &opened{wire: near}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A link may come back with round trips of a second, behind a full queue or over another network, where it had some of 30 ms.
func TestLinkComesBackSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		carriers["slow"] = &slowCarrier{takes: 3 * time.Second}
		defer delete(carriers, "slow")
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		lost := &target{tries: []try{{}}, path: s.near.paths[1], retry: newSignal()}
		lost.path.end(errPathLost)
		d := &dialer{c: s.near, cfg: &Config{Carrier: "slow"}, changed: newSignal(), targets: map[pair]*target{{"a", "far"}: lost}}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start := time.Now()
		won, err := d.race(ctx, pair{"a", "far"}, lost, lost.path.rivalTime())
		if err != nil {
			t.Fatalf("no new connection in %v: %v", time.Since(start), err)
		}
		won.wire.Close()
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("a new connection after %v", took)
		}
		synctest.Wait() // the other attempts are given up
	})
}

// A link that is gone and comes back may not lead to the peer at once: its access point, or the router behind it, starts again. What has worked is tried as often then as
// after a silence, and not more and more seldom.
func TestLinkComesBackInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &deafCarrier{}
		carriers["deaf"] = deaf
		defer delete(carriers, "deaf")
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		between := pair{"a", "far"}
		d := &dialer{c: s.near, cfg: &Config{Carrier: "deaf"}, created: true, changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}, targets: map[pair]*target{},
			hosts: []Peer{{Link: "far", Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}}}}
		lost := s.near.paths[1]
		d.note(between, &target{}, lost, nil)
		lost.end(errLinkGone)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var running sync.WaitGroup
		d.update(ctx, nil, &running)
		d.update(ctx, []Link{{Name: "a", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}}, &running)
		if why := d.failures(false)["a"]; why != errPathLost.Error() {
			t.Errorf("of the link is said %q", why)
		}
		running.Wait()
		synctest.Wait()
		for i := 1; i < len(deaf.begun); i++ {
			if gap := deaf.begun[i].Sub(deaf.begun[i-1]); gap > 400*time.Millisecond {
				t.Fatalf("attempt %d of %d follows after %v", i, len(deaf.begun), gap)
			}
		}
		if len(deaf.begun) < 100 {
			t.Errorf("%d attempts in a minute", len(deaf.begun))
		}
	})
}

// A path that was silent for a while answers again, and no new connection can be made: the listener takes none any more, for example. It is used, and nothing else is said or tried.
func TestSilentPathAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &deafCarrier{}
		carriers["deaf"] = deaf
		defer delete(carriers, "deaf")
		s := newSimSession(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
		defer s.close()
		silent := &target{tries: []try{{}}, path: s.near.paths[1], retry: newSignal()}
		d := &dialer{c: s.near, cfg: &Config{Carrier: "deaf"}, changed: newSignal(), wanted: map[string]bool{}, missing: map[string]string{}, had: map[pair]*path{},
			targets: map[pair]*target{{"a", "far"}: silent}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s.wires[0].freeze()
		go d.runPair(ctx, pair{"a", "far"}, silent)
		time.Sleep(20 * time.Second)
		tries := func() int { deaf.mu.Lock(); defer deaf.mu.Unlock(); return len(deaf.begun) }
		before := tries()
		s.wires[0].thaw()
		time.Sleep(time.Minute)
		if why, more := d.failures(false)["a"], tries()-before; why != "" || more > rivalsMax || before == 0 {
			t.Errorf("after %d attempts and %d more of its link is said %q", before, more, why)
		}
	})
}

// Links that have had paths with others are tried with each other every some seconds, those that never had one every half a minute.
func TestPauses(t *testing.T) {
	works, lost := &path{}, &target{tries: []try{{}}, failed: 9}
	d := &dialer{c: &Conn{}, changed: newSignal(), wanted: map[string]bool{}, had: map[pair]*path{}}
	d.note(pair{"a", "x"}, &target{}, works, nil)
	d.note(pair{"b", "y"}, &target{}, works, nil)
	for between, want := range map[pair]time.Duration{{"a", "y"}: pauseKnown, {"b", "x"}: pauseKnown, {"a", "z"}: pauseMax, {"c", "x"}: pauseMax} {
		if got := d.note(between, lost, nil, errPathLost); got != want {
			t.Errorf("%v: a pause of %v, not %v", between, got, want)
		}
	}
}

// When the peer has ended the session, whatever is still tried is refused. That is no failure of a link, which its user would look for.
func TestEndIsNoFailureOfLinks(t *testing.T) {
	for name, c := range map[string]*Conn{"taken": {err: ErrClosedByPeer}, "come": {ending: true}} {
		silent := &target{tries: []try{{}}, path: &path{}}
		first := &target{tries: []try{{}}}
		d := &dialer{c: c, changed: newSignal(), missing: map[string]string{}, had: map[pair]*path{}, targets: map[pair]*target{{"a", "x"}: silent, {"b", "x"}: first}}
		d.note(pair{"a", "x"}, silent, nil, errGone)
		d.note(pair{"b", "x"}, first, nil, errGone)
		if got := d.failures(false); got["a"] != "" || got["b"] != NotYet {
			t.Errorf("farewell %s: failures %q", name, got)
		}
	}
}
