package stripe

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestChoose(t *testing.T) {
	link := func(name, prefix string) Link {
		return Link{Name: name, Addrs: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	peer := func(name, addr string) Peer {
		return Peer{Link: name, Addrs: []netip.AddrPort{netip.MustParseAddrPort(addr + ":1")}}
	}
	lan, wifi, lo := link("eth0", "10.0.0.1/24"), link("wlan0", "10.1.0.1/24"), link("lo", "127.0.0.1/8")
	usb, spare := link("usb0", "10.1.0.3/24"), peer("s1", "10.1.0.2")
	spare.Policy = Policy{CapBytes: 1}
	near0, near1, public, six := peer("s0", "10.0.0.2"), peer("s1", "10.1.0.2"), peer("pub", "198.51.100.1"), peer("six", "[2001:db8::1]")
	for _, c := range []struct {
		name            string
		links           []Link
		peers           []Peer
		works, doubtful []pair
		want            []pair
	}{
		{"one address, two links", []Link{lan, wifi}, []Peer{public}, nil, nil, []pair{{"eth0", "pub"}, {"wlan0", "pub"}}},
		{"same subnets", []Link{lan, wifi, lo}, []Peer{near1, near0}, nil, nil, []pair{{"eth0", "s0"}, {"wlan0", "s1"}}},
		{"one link, two addresses", []Link{lan}, []Peer{near0, public}, nil, nil, []pair{{"eth0", "s0"}, {"eth0", "pub"}}},
		{"no common family", []Link{lan}, []Peer{six}, nil, nil, nil},
		{"this host", []Link{lan, lo}, []Peer{peer("me", "127.0.0.1")}, nil, nil, []pair{{"lo", "me"}}},
		{"a doubtful pair gets company", []Link{wifi}, []Peer{near0, near1}, nil, []pair{{"wlan0", "s1"}}, []pair{{"wlan0", "s1"}, {"wlan0", "s0"}}},
		{"what works stays", []Link{lan, wifi}, []Peer{near0, near1}, []pair{{"eth0", "s1"}, {"wlan0", "s0"}}, nil, []pair{{"eth0", "s1"}, {"wlan0", "s0"}}},
		{"a link with a policy does not do", []Link{lan, usb}, []Peer{near0, near1}, nil, nil, []pair{{"eth0", "s0"}, {"usb0", "s1"}, {"eth0", "s1"}}},
		{"nor one of the peer", []Link{lan, wifi}, []Peer{near0, spare}, nil, nil, []pair{{"eth0", "s0"}, {"wlan0", "s1"}, {"wlan0", "s0"}}},
		{"what works with it stays", []Link{lan, wifi}, []Peer{near0, spare}, []pair{{"wlan0", "s1"}, {"eth0", "s0"}}, nil, []pair{{"eth0", "s0"}, {"wlan0", "s1"}, {"wlan0", "s0"}}},
		{"and what it is not for", []Link{lan, wifi}, []Peer{near0, spare}, []pair{{"eth0", "s0"}, {"wlan0", "s1"}, {"wlan0", "s0"}}, nil, []pair{{"eth0", "s0"}, {"wlan0", "s1"}, {"wlan0", "s0"}}},
		{"where all have one it does", []Link{lan, wifi}, []Peer{spare}, nil, nil, []pair{{"eth0", "s1"}, {"wlan0", "s1"}}},
		{"but not twice", []Link{lan, wifi}, []Peer{near0, near1}, []pair{{"eth0", "s0"}, {"wlan0", "s0"}, {"wlan0", "s1"}}, nil, []pair{{"eth0", "s0"}, {"wlan0", "s1"}}},
	} {
		var got []pair
		for _, w := range choose(ways(c.links, c.peers, map[string]Policy{"usb0": {Backup: true}}), func(p pair) bool { return slices.Contains(c.works, p) }, func(p pair) bool { return slices.Contains(c.doubtful, p) }, func(pair) bool { return false }) {
			got = append(got, w.pair)
		}
		slices.SortFunc(got, func(a, b pair) int { return slices.Index(c.want, a) - slices.Index(c.want, b) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", c.name, got, c.want)
		}
	}
}

// When all paths fall silent, others are tried beside them, and none of them is given up for one that may not work either; it is for one that does.
func TestSilentPathsStay(t *testing.T) {
	var links []Link
	var peers []Peer
	for i, name := range []string{"wlan0", "lte0", "usb0"} {
		links = append(links, Link{Name: name, Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 2}), 24)}})
	}
	for i, name := range []string{"eth0", "wwan0"} {
		peers = append(peers, Peer{Link: name, Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 7, byte(i), 2}), 1)}})
	}
	silent := []pair{{"wlan0", "eth0"}, {"lte0", "wwan0"}, {"usb0", "eth0"}}
	isSilent := func(p pair) bool { return slices.Contains(silent, p) }
	chosen := func(works ...pair) (out []pair) {
		for _, w := range choose(ways(links, peers, nil), func(p pair) bool { return slices.Contains(works, p) }, isSilent, isSilent) {
			out = append(out, w.pair)
		}
		return out
	}
	got := chosen()
	for _, p := range silent {
		if !slices.Contains(got, p) {
			t.Errorf("%v is given up: %v", p, got)
		}
	}
	if len(got) == len(silent) {
		t.Errorf("nothing is tried beside %v", got)
	}
	if got := chosen(pair{"lte0", "eth0"}, pair{"wlan0", "wwan0"}); slices.Contains(got, pair{"lte0", "wwan0"}) {
		t.Errorf("%v, though both links of lte0 and wwan0 have one that works", got)
	}
}

// What a listener says of its links is not believed: some of it would be a hello that fits no frame, or no address at all.
func TestListenerTellsNonsense(t *testing.T) {
	at := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}
	longest := Peer{Link: strings.Repeat("x", maxName), Addrs: at}
	d := &dialer{changed: newSignal(), heard: map[string]bool{}}
	d.hear([]Peer{{Link: strings.Repeat("x", maxFrame-54), Addrs: at}, {Link: "nowhere"}, {Link: "invalid", Addrs: []netip.AddrPort{{}}}, longest})
	<-d.changed
	if got := d.peers(); len(got) != 1 || got[0].Link != longest.Link {
		t.Errorf("%d links are believed; want the last one only", len(got))
	}
	a, b := NewKey(), NewKey()
	if c, err := DialPeers(t.Context(), &Config{Key: a, Peers: []PublicKey{b.Public()}}, []Peer{{Link: "nowhere"}}); err == nil {
		c.Abort()
		t.Error("a connection with a peer that has no address")
	}
}

// The last list of a listener counts, however close it comes behind another.
func TestLastListCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{changed: newSignal(), heard: map[string]bool{}}
		for i := range 100 {
			last := []Peer{{Link: fmt.Sprint("new", i), Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}}}
			d.hear(nil)
			d.hear(last)
			synctest.Wait()
			if got := d.peers(); len(got) != 1 || got[0].Link != last[0].Link {
				t.Fatalf("list %d: %+v, want %+v", i, got, last)
			}
		}
	})
}

// A listener whose links are all away tells loopback, having nothing else. That is none that it has lost when they are back.
func TestLoopbackIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{changed: newSignal(), heard: map[string]bool{}, cfg: &Config{}}
		for _, told := range []Peer{{Link: "lo", Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}}, {Link: "eth0", Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}}, {Link: "wwan0", Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:1")}}} {
			d.hear([]Peer{told})
			synctest.Wait()
		}
		d.seekFar(nil, nil)
		if d.farMissing["lo"] != "" || d.farMissing["eth0"] == "" {
			t.Errorf("missing are %q; want eth0, not lo", d.farMissing)
		}
	})
}

// Loopback leads to no other host: that is the reason told, at either end, and not that families differ.
func TestLoopbackLeadsNowhere(t *testing.T) {
	lo, eth0 := Link{"lo", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}}, Link{"eth0", []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	for _, c := range []struct{ near, far Link }{{lo, eth0}, {eth0, lo}} {
		told := announce([]Link{c.far}, nil, 7788)
		d := &dialer{cfg: &Config{}, wanted: map[string]bool{c.near.Name: true}, hosts: told, told: told, heard: map[string]bool{c.far.Name: true}}
		d.update(t.Context(), []Link{c.near}, nil)
		for far, name := range map[bool]string{false: c.near.Name, true: c.far.Name} {
			if got := d.failures(far)[name]; !strings.Contains(got, "loopback") || strings.Contains(got, "family") {
				t.Errorf("%s to %s, of %s: %q", c.near.Name, c.far.Name, name, got)
			}
		}
	}
}

// A named link that cannot reach any of the peer's addresses is told, with the reason: one of IPv6 alone, and a peer of IPv4.
func TestNoAddressOfTheFamily(t *testing.T) {
	d := &dialer{cfg: &Config{Links: map[string]Policy{"wwan0": {}}}, wanted: map[string]bool{"wwan0": true}, hosts: []Peer{{Link: "host", Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}}}}
	d.update(t.Context(), []Link{{"wwan0", []netip.Prefix{netip.MustParsePrefix("2001:db8::2/64")}}}, nil)
	if got := d.failures(false)["wwan0"]; !strings.Contains(got, "same family") {
		t.Errorf("wwan0: %q", got)
	}
	d.told, d.heard = []Peer{{Link: "host", Addrs: d.hosts[0].Addrs}}, map[string]bool{"host": true, "gone": true}
	d.update(t.Context(), []Link{{"wwan0", []netip.Prefix{netip.MustParsePrefix("2001:db8::2/64")}}}, nil)
	if got := d.failures(true); len(got) != 2 || !strings.Contains(got["host"], "same family") || !strings.Contains(got["gone"], "does not have it any more") {
		t.Errorf("of the peer's links: %q", got)
	}
}

// A link without a path has a reason, in words that do not depend on the order of a map; one that works over another pair has none.
func TestReasons(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:7")
	explained := func(err error) *target {
		return &target{err: TCP.explain(to, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err})}
	}
	d := &dialer{missing: map[string]string{}, targets: map[pair]*target{
		{"new", "x"}: {}, {"new", "a"}: explained(syscall.ENETUNREACH), {"late", "a"}: explained(syscall.ENETUNREACH), // a is in another link's network
		{"late", "x"}: explained(os.ErrDeadlineExceeded), {"late", "y"}: explained(syscall.EHOSTUNREACH), {"late", "w"}: {},
		{"far", "x"}: explained(syscall.ENETUNREACH), {"shut", "x"}: explained(syscall.ECONNREFUSED),
		{"good", "x"}: explained(syscall.ECONNREFUSED), {"good", "y"}: {works: true, path: &path{to: "y"}},
	}}
	want := map[string]string{
		"new":  NotYet,
		"late": "no answer from the server over this link (tried 192.0.2.1:7): a firewall may block TCP, or the link leads elsewhere",
		"far":  "no route to the server over this link (tried 192.0.2.1:7)",
		"shut": "refused by the server over this link: nothing listens at 192.0.2.1:7, or a firewall refuses TCP",
	}
	d.farMissing, d.farNames = map[string]string{}, map[string]string{"w": "w", "x": "x", "y": "behind", "z": "z"} // y is a NAT's, of which the listener knows nothing
	d.targets[pair{"good", "nat"}] = &target{works: true, path: &path{to: "z"}}
	d.targets[pair{"late", "z"}] = explained(syscall.ECONNREFUSED)
	wantFar := map[string]string{"w": NotYet, "x": "from good: " + want["shut"], "behind": "from late: " + want["far"]}
	for range 20 {
		if got := d.failures(false); !maps.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
		if got := d.failures(true); !maps.Equal(got, wantFar) {
			t.Fatalf("of the peer's links: %q, want %q", got, wantFar)
		}
	}
}

// Why a link is not used is said of the way that worked, not of others that never did: a far side behind a NAT tells addresses that lead nowhere from here. Before an attempt to
// reconnect has failed, nothing is known against a link that has fallen silent.
func TestReasonOfWhatWorked(t *testing.T) {
	public, private := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("10.0.0.1:7")
	late, refused, nowhere := TCP.explain(public, os.ErrDeadlineExceeded), TCP.explain(private, syscall.ECONNREFUSED), TCP.explain(private, syscall.ENETUNREACH)
	for _, gone := range []error{late, TCP.explain(public, syscall.ENETUNREACH)} {
		d := &dialer{missing: map[string]string{}, farMissing: map[string]string{}, farNames: map[string]string{"eth0": "eth0"}, targets: map[pair]*target{
			{"lost", "nat"}: {path: &path{to: "eth0"}, err: gone}, {"lost", "eth0"}: {err: refused}, {"lost", "a"}: {err: nowhere}, {"lost", "b"}: {},
		}}
		if got, want := d.failures(false), (map[string]string{"lost": gone.Error()}); !maps.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got, want := d.failures(true), (map[string]string{"eth0": "from lost: " + gone.Error()}); !maps.Equal(got, want) {
			t.Errorf("of the peer's links: %q, want %q", got, want)
		}
		d.targets[pair{"silent", "nat"}], d.targets[pair{"silent", "eth0"}] = &target{path: &path{to: "eth0"}}, &target{err: nowhere}
		if near, far := d.failures(false), d.failures(true); near["silent"] != "" || len(far) > 0 {
			t.Errorf("of a silent link is said %q; of the peer's: %q", near["silent"], far)
		}
	}
}

// Why there is no path at all is told link by link, and of each what says most first.
func TestErrorsInOrder(t *testing.T) {
	public, private := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("10.0.0.1:7")
	refused, nowhere := TCP.explain(public, syscall.ECONNREFUSED), TCP.explain(private, syscall.ENETUNREACH)
	d := &dialer{missing: map[string]string{"c": "the interface is down"}, targets: map[pair]*target{
		{"a", "eth0"}: {err: nowhere}, {"a", "nat"}: {err: refused}, {"b", "eth0"}: {err: nowhere}, {"b", "nat"}: {err: refused}, {"b", "wwan0"}: {},
	}}
	want := fmt.Sprintf("link c: the interface is down\nlink a: %v\nlink a: %v\nlink b: %v\nlink b: %v", refused, nowhere, refused, nowhere)
	for range 20 {
		if got := d.errors(); got.Error() != want {
			t.Fatalf("%v\nwant\n%s", got, want)
		}
	}
}

// wireTo is a wire to an address.
type wireTo struct {
	wire
	remote netip.AddrPort
}

func (a wireTo) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(a.remote) }

// A pair may have an address in a network that this link does not lead to, of the other family mostly. It must not hide why the other one does not answer.
func TestReasonOfSeveralAddresses(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("[2001:db8::1]:7")
	tried := func(to netip.AddrPort, err error) error { return &attemptError{TCP.explain(to, err), to} }
	late, nowhere, lost := tried(v4, os.ErrDeadlineExceeded), tried(v6, syscall.ENETUNREACH), tried(v4, syscall.ENETUNREACH)
	worked := &path{wire: wireTo{remote: v4}}
	for name, c := range map[string]struct {
		of   target
		came []error
		want error
	}{
		"never worked":     {target{}, []error{late, nowhere}, late},
		"lost its route":   {target{}, []error{late, nowhere, lost}, lost},
		"no route at all":  {target{}, []error{nowhere, lost, nowhere}, nowhere},
		"silent":           {target{path: worked}, []error{nowhere}, nil},
		"silent for long":  {target{path: worked}, []error{nowhere, late, nowhere}, late},
		"ended":            {target{path: worked, err: errPathLost}, []error{nowhere}, errPathLost},
		"of other numbers": {target{path: &path{wire: wireTo{remote: netip.MustParseAddrPort("192.0.2.9:7")}}}, []error{nowhere}, nowhere},
	} {
		d := &dialer{c: &Conn{}, changed: newSignal(), had: map[pair]*path{}}
		of := c.of
		of.tries = []try{{to: v4}, {to: v6}}
		for _, err := range c.came {
			d.note(pair{"a", "x"}, &of, nil, err)
		}
		if !errors.Is(of.err, c.want) || of.works {
			t.Errorf("%s: %v, want %v", name, of.err, c.want)
		}
	}
}
