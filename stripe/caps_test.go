package stripe

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// When all links have reached their caps, both ends hear of it, whoever sends; when one without a cap may come, it is waited for.
func TestAllLinksSpent(t *testing.T) {
	const caps = 1 << 20
	for name, c := range map[string]struct {
		links map[string]Policy
		pull  bool
		after time.Duration // caps are reached after about 2 s, averages and patience follow
		want  error
	}{
		"push":              {links: map[string]Policy{"a": {CapBytes: caps}, "b": {CapBytes: caps}}, after: 10 * time.Second, want: ErrSpent},
		"pull":              {links: map[string]Policy{"a": {CapBytes: caps}, "b": {CapBytes: caps}}, pull: true, after: 10 * time.Second, want: ErrSpent},
		"another is absent": {links: map[string]Policy{"a": {CapBytes: caps}, "b": {CapBytes: caps}, "c": {}}, after: defaultPatience + 10*time.Second, want: ErrNoPath},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimSession(t)
				defer s.close()
				s.near.cfg = &Config{Links: c.links}
				for _, link := range []string{"a", "b"} {
					s.add(t, simPath{mbps: 4, delay: 15e6, queue: 75000, policy: c.links[link]})
				}
				from, to := s.near, s.far
				if c.pull {
					from, to = s.far, s.near
				}
				start, got := time.Now(), make(chan int64)
				go func() { n, _ := io.Copy(io.Discard, to); got <- n }()
				_, err := from.Write(make([]byte, 8<<20))
				took := time.Since(start)
				if err == nil || !strings.Contains(err.Error(), c.want.Error()) || !strings.Contains(err.Error(), "reached their caps") || took > c.after || took < c.after-10*time.Second {
					t.Errorf("writing ended after %v: %v; want %v, and that caps are reached, after at most %v", took, err, c.want, c.after)
				}
				if n := <-got; n < 2*caps*9/10 || n > 2*caps {
					t.Errorf("%d bytes have come; want nearly %d", n, 2*caps)
				}
			})
		})
	}
}

// A cap is for all connections with one configuration, such as a proxy's.
func TestCapOfManyConnections(t *testing.T) {
	links := map[string]Policy{"a": {CapBytes: 1 << 20}}
	for _, pull := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far, all := &Config{Links: links}, &Config{}, uint64(0)
			for range 3 {
				s := newSimSession(t)
				s.near.cfg, s.far.cfg = near, far
				s.add(t, simPath{mbps: 8, delay: 15e6, queue: 75000, policy: links["a"]})
				s.add(t, simPath{mbps: 8, delay: 15e6, queue: 75000})
				if pull {
					s.near, s.far = s.far, s.near
				}
				s.transfer(t, 1<<20)
				if pull {
					s.near, s.far = s.far, s.near
				}
				st := s.near.Stats()[0]
				all += st.SentBytes + st.ReceivedBytes
				s.close()
			}
			if all < 900<<10 || all > 1<<20 || !near.spent("a") {
				t.Errorf("pull %v: the link carried %d KB; want 900 to 1024", pull, all>>10)
			}
		})
	}
}

// A path over a link that has reached its cap serves no other link: what is at its other end gets another path. It stays while it lives, and is not made again.
func TestSpentPathServesNobody(t *testing.T) {
	var links []Link
	var peers []Peer
	for i, name := range []string{"a", "b"} {
		links = append(links, Link{Name: name, Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24)}})
		peers = append(peers, Peer{Link: "far " + name, Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 2}), 1)}})
	}
	capped := map[string]Policy{"a": {CapBytes: 1 << 20}, "b": {CapBytes: 2 << 20}}
	farCapped := slices.Clone(peers)
	for i := range farCapped {
		farCapped[i].Policy = Policy{CapBytes: uint64(1+i) << 20}
	}
	spent, other := pair{"a", "far a"}, pair{"b", "far b"}
	cap1 := Policy{CapBytes: 1 << 20}
	for name, c := range map[string]struct {
		links map[string]Policy
		peers []Peer
		of    use
		ends  [2]Policy // of the path that is spent
		want  pair      // beside those
		far   bool
		why   string
	}{
		"a link of this host": {capped, peers, use{own: true, link: "a"}, [2]Policy{cap1, {}}, pair{"b", "far a"}, false, "a"},
		"one of the peer":     {nil, farCapped, use{link: "far a"}, [2]Policy{{}, cap1}, pair{"a", "far b"}, true, "far a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				carriers["deaf"] = &deafCarrier{}
				defer delete(carriers, "deaf")
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer stop()
				cfg := &Config{Carrier: "deaf", Links: c.links}
				works := func(from Link, ends [2]Policy) *target {
					local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.Addrs[0].Addr(), 1))
					f := &flight{ends: [2]end{{ends[0], &meter{used: cfg.used.of(c.of)}}, {ends[1], &meter{used: cfg.used.of(c.of)}}}}
					return &target{works: true, cancel: func() {}, path: &path{done: make(chan struct{}), to: "x", wire: &simWire{addr: local}, flight: f}}
				}
				d := &dialer{c: &Conn{cfg: cfg, done: make(chan struct{})}, cfg: cfg, changed: newSignal(), told: c.peers, wanted: map[string]bool{"a": true}, had: map[pair]*path{}, targets: map[pair]*target{spent: works(links[0], c.ends), other: works(links[1], [2]Policy{})}}
				cfg.used.of(c.of).Store(1 << 20)
				d.update(ctx, links, &running)
				if d.targets[spent] == nil || d.targets[other] == nil || d.targets[c.want] == nil || len(d.targets) != 3 {
					t.Errorf("paths are wanted between %v; want %v, too", slices.Collect(maps.Keys(d.targets)), c.want)
				}
				d.targets[spent].works = false
				close(d.targets[spent].path.done)
				for range 2 {
					d.update(ctx, links, &running)
				}
				if d.targets[spent] != nil {
					t.Errorf("%v is tried again", spent)
				}
				if got := d.failures(c.far)[c.why]; got != capReached {
					t.Errorf("%s: %q", c.why, got)
				}
			})
		})
	}
}

// A host's name may have the addresses of several links, of which one has reached its cap: the others are tried.
func TestOneOfSeveralIsSpent(t *testing.T) {
	at := func(addr string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(addr)} }
	told := []Peer{{Link: "eth0", Addrs: at("10.0.0.2:1")}, {Link: "wwan0", Addrs: at("10.0.1.2:1"), Policy: Policy{CapBytes: 1 << 20}}}
	cfg := &Config{}
	d := &dialer{c: &Conn{}, cfg: cfg, hosts: []Peer{{Link: "host", Addrs: append(at("10.0.0.2:1"), at("10.0.1.2:1")...)}}, told: told}
	all := ways([]Link{{"a", []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}, d.peers(), nil)
	cfg.used.of(use{link: "wwan0"}).Store(1 << 20)
	d.seekFar(nil, all)
	if got := d.unspent(all, map[pair]way{}); len(all) != 1 || len(got) != 1 {
		t.Errorf("of %v are left %v", all, got)
	}
	d.told = told[1:]
	d.seekFar(nil, all)
	if got := d.unspent(all, map[pair]way{}); len(got) != 0 || d.farMissing["wwan0"] != capReached {
		t.Errorf("where all are spent, %v are left; %v", got, d.farMissing)
	}
}

// Peers that make up links with caps do not keep those of this host's from being counted over all connections.
func TestPeersFillUses(t *testing.T) {
	cfg := &Config{Links: map[string]Policy{"wwan0": {CapBytes: 1 << 20}}}
	for i := range 2 * maxUses {
		cfg.used.of(use{link: fmt.Sprint(i)})
	}
	cfg.used.of(use{own: true, link: "wwan0"}).Add(1 << 20)
	if !cfg.spent("wwan0") {
		t.Error("what has gone over wwan0 is forgotten")
	}
	if n := len(cfg.used.by); n > maxUses+len(cfg.Links) {
		t.Errorf("%d links are counted", n)
	}
}
