package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/egress"
	"plait.dev/plait/egress/route"
	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// The main thread stays with the main goroutine: netns.Do on it would leave it in a test's namespace.
func init() {
	runtime.LockOSThread()
	patience = 300 * time.Millisecond
}

// The network of these tests: a content server, a router of its network, the border router with a SID for each family, the peer, and a client behind it.
//
//	server 1:: - 1::1 inner 2:: - 2::1 border 3:: - 3::1 peer 4:: - 4::1 client, who has 2001:db8:c000::/34 and 198.51.0.0/16
//
// All links have an MTU of 1700 but those behind the border router.
type network struct {
	testing.TB
	server, inner, border, peer, client string
	kernel                              *route.Kernel
	in                                  Input
	did                                 []string
}

const (
	exit6  = "2001:db8:e::a"
	exit4  = "203.0.113.1"
	sid6   = "fc00:1:0:6::"
	sid4   = "fc00:1:0:4::"
	server = "2001:db8:1::10"
)

func (n *network) ip(format string, arguments ...any) {
	n.Helper()
	command := fmt.Sprintf(format, arguments...)
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		n.Fatalf("ip %s: %v: %s", command, err, out)
	}
}

// link joins two namespaces by a pair of veth: the left one's is east, the right one's west, and they have addresses ::10 and ::1 of a prefix.
func (n *network) link(left, right string, number, mtu int) {
	n.Helper()
	n.ip("-n %s link add east type veth peer name west netns %s", left, right)
	for _, e := range []struct {
		ns, link string
		host     int
	}{{left, "east", 10}, {right, "west", 1}} {
		n.ip("-n %s link set %s mtu %d up", e.ns, e.link, mtu)
		n.ip("-n %s addr add 2001:db8:%d::%d/64 dev %s nodad", e.ns, number, e.host, e.link)
		n.ip("-n %s addr add 10.0.%d.%d/24 dev %s", e.ns, number, e.host, e.link)
	}
}

// newNetwork is one in which everything works.
func newNetwork(tb testing.TB) *network {
	tb.Helper()
	rung.Netns(tb)
	name := fmt.Sprintf("plait-check-%d-", os.Getpid())
	n := &network{TB: tb, server: name + "s", inner: name + "i", border: name + "b", peer: name + "p", client: name + "c"}
	all := []string{n.server, n.inner, n.border, n.peer, n.client}
	for _, ns := range all {
		n.ip("netns add %s", ns)
		tb.Cleanup(func() { n.ip("netns del %s", ns) })
		n.must(netns.Do(ns, func() error {
			for key, value := range map[string]string{"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/forwarding": "1", "ipv4/ip_forward": "1",
				"ipv4/conf/all/proxy_arp": "1", "ipv4/conf/default/proxy_arp": "1", // End.DX4 looks the target up on the link
				"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv6/icmp/ratelimit": "0", "ipv4/icmp_ratelimit": "0"} {
				if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
					return err
				}
			}
			return nil
		}))
		n.ip("-n %s link set lo up", ns)
	}
	for i, mtu := range []int{1700, 1700, 1500, 1500} {
		n.link(all[i], all[i+1], i+1, mtu)
	}
	// forth: locators inside, clients outside; back: everything else
	n.ip("-n %s -6 route add 2001:db8:c000::/34 via 2001:db8:1::1", n.server)
	n.ip("-n %s -6 route add 2001:db8:c000::/34 via 2001:db8:2::1", n.inner)
	n.ip("-n %s route add 198.51.0.0/16 via 10.0.1.1", n.server)
	n.ip("-n %s route add 198.51.0.0/16 via 10.0.2.1", n.inner)
	n.ip("-n %s -6 route add fc00::/16 via 2001:db8:1::1", n.server)
	n.ip("-n %s -6 route add fc00::/16 via 2001:db8:2::1", n.inner)
	for i, ns := range []string{n.border, n.peer} {
		n.ip("-n %s -6 route add 2001:db8:c000::/34 via 2001:db8:%d::1", ns, i+3)
		n.ip("-n %s route add 198.51.0.0/16 via 10.0.%d.1", ns, i+3)
	}
	n.ip("-n %s -6 route add %s/128 via 2001:db8:1::10", n.inner, exit6)
	n.ip("-n %s route add %s via 10.0.1.10", n.inner, exit4)
	for i, ns := range []string{n.border, n.peer, n.client} {
		n.ip("-n %s -6 route add %s/128 via 2001:db8:%d::10", ns, exit6, i+2)
		n.ip("-n %s -6 route add 2001:db8:1::/64 via 2001:db8:%d::10", ns, i+2)
		n.ip("-n %s route add %s via 10.0.%d.10", ns, exit4, i+2)
		n.ip("-n %s route add 10.0.1.0/24 via 10.0.%d.10", ns, i+2)
	}
	n.ip("-n %s -6 route add default via 2001:db8:3::1 table 10", n.border)
	n.ip("-n %s -6 route add %s/128 encap seg6local action End.DT6 table 10 dev east", n.border, sid6)
	n.ip("-n %s -6 route add %s/128 encap seg6local action End.DX4 nh4 10.0.3.1 dev east", n.border, sid4)
	n.ip("-n %s -6 route add local 2001:db8:c000::/34 dev lo", n.client)
	n.ip("-n %s route add local 198.51.0.0/16 dev lo", n.client)
	n.plan(Sample{Prefix: netip.MustParsePrefix("2001:db8:c000::/48"), SID: netip.MustParseAddr(sid6)}, Sample{Prefix: netip.MustParsePrefix("198.51.100.0/24"), SID: netip.MustParseAddr(sid4)})
	n.carrier()
	return n
}

func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// carrier waits until the client answers the peer, and with that, that links and neighbours are there.
func (n *network) carrier() {
	n.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		p := &prober{}
		var t trace
		err := netns.Do(n.peer, func() (err error) {
			if p, err = newProber(n.Context(), netip.MustParseAddr("2001:db8:4::10"), netip.MustParseAddr("2001:db8:4::10"), false); err != nil {
				return err
			}
			t, err = p.ask(n.Context(), netip.Addr{}, map[int]packet{}, []packet{{netip.MustParseAddr("2001:db8:c000::1"), 5, smallPacket}}, func(answer) bool { return true })
			return err
		})
		if p != nil {
			p.close()
		}
		if err == nil && len(t) > 0 {
			return
		}
		if time.Now().After(deadline) {
			n.Fatalf("the client does not answer the peer: %v", err)
		}
	}
}

// plan puts routes of one exit into the server's kernel and makes what a plait would know of it.
func (n *network) plan(samples ...Sample) { n.Helper(); n.planOn("east", samples...) }

func (n *network) planOn(link string, samples ...Sample) {
	n.Helper()
	x := egress.Exit{Name: "a", RouteTarget: "65000:11", Locators: []netip.Prefix{netip.MustParsePrefix("fc00:1::/48")}, Table: 101,
		Addresses: []netip.Addr{netip.MustParseAddr(exit6), netip.MustParseAddr(exit4)}}
	n.in = Input{On: true, Settled: true, Interface: link, Address: netip.MustParseAddr(server), Sessions: []Session{{netip.MustParseAddr("2001:db8:1::2"), true, "Established"}},
		Exits: []Exit{{Exit: x, Routes: len(samples), SIDs: 2, Samples: samples}}}
	n.must(netns.Do(n.server, func() (err error) {
		n.kernel, err = route.Open(route.Config{Exits: []egress.Exit{x}, Interface: link, TunnelSource: n.in.Address, Memory: filepath.Join(n.TempDir(), "tunsrc")})
		if err != nil {
			return err
		}
		return n.kernel.Reconcile(n.entries)
	}))
	n.Cleanup(n.kernel.Close)
}

// entries are what the plan has.
func (n *network) entries(yield func(egress.Entry) bool) {
	for _, s := range n.in.Exits[0].Samples {
		if !yield(egress.Entry{Table: 101, Prefix: s.Prefix, SID: s.SID}) {
			return
		}
	}
}

// run does the checks on the server.
func (n *network) run() (out []Result) {
	n.Helper()
	n.must(netns.Do(n.server, func() (err error) {
		out, err = Run(n.Context(), func() (Input, error) { return n.in, nil }, func(s string) { n.did = append(n.did, s) })
		return err
	}))
	for _, r := range out {
		n.Logf("%s %s %s: %s", r.Outcome, r.Exit, r.Check, r.Found)
	}
	return out
}

// want compares the outcomes of some checks; those of both families of the exit in turn.
func (n *network) want(out []Result, want map[string][]Outcome) {
	n.Helper()
	for check, outcomes := range want {
		var got []Outcome
		for _, r := range out {
			if r.Check == check {
				got = append(got, r.Outcome)
			}
			if r.Outcome == Failed && r.Do == "" {
				n.Errorf("%s: it does not say what to do", r.Check)
			}
		}
		if !slices.Equal(got, outcomes) {
			n.Errorf("%s: got %v, want %v", check, got, outcomes)
		}
	}
}

func found(out []Result, check string) (text string) {
	for _, r := range out {
		if r.Check == check {
			text += r.Found + "\n"
		}
	}
	return text
}

func TestAllIsWell(t *testing.T) {
	n := newNetwork(t)
	out := n.run()
	for _, r := range out {
		if r.Outcome != OK {
			t.Errorf("%s %s: %s %s", r.Check, r.Exit, r.Outcome, r.Found)
		}
	}
	n.want(out, map[string][]Outcome{"answer": {OK, OK}, "forward": {OK, OK}, "size": {OK, OK}, "way": {OK, OK}, "table": {OK}, "rules": {OK}, "lookup": {OK}, "session": {OK}, "tunnel source": {OK}, "best path": {OK, OK}})
	if text := found(out, "size"); strings.Count(text, "packets of 1500 bytes pass") != 2 {
		t.Errorf("got %s, want full packets in both families", text)
	}
	if did := strings.Join(n.did, "; "); did != "what the kernel has; exit a (1 of 1), SID "+sid6+" (1 of 2); exit a (1 of 1), SID "+sid4+" (2 of 2); best path" {
		t.Errorf("it said meanwhile: %s", did)
	}
}

// All looks right, and the SID drops.
func TestSIDDrops(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 route replace blackhole %s/128", n.border, sid6)
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {Failed, OK}, "forward": {OK}, "size": {Unknown, OK}, "way": {OK, OK}, "table": {OK}, "rules": {OK}, "lookup": {OK}})
	if !strings.Contains(found(out, "answer"), "nothing answers") {
		t.Error("it does not say that packets are dropped")
	}
	for _, r := range out {
		if r.Check == "answer" && r.Outcome == Failed && !strings.HasSuffix(r.Do, "whether this host's own firewall lets ICMP in") {
			t.Errorf("got %s: the answers may be dropped here", r.Do)
		}
	}
}

// The exit works, and the border router keeps what it announces to itself, or nobody has told this host.
func TestBestPathDrops(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 route replace unreachable 2001:db8:c000::/34", n.border)
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {OK, OK}, "forward": {OK, OK}, "best path": {Failed, OK}})
	if text := found(out, "best path"); !strings.Contains(text, "2001:db8:2::1 has no route to 2001:db8:c000::1, and through an exit packets get on") {
		t.Errorf("got %s", text)
	}
	n.ip("-n %s -6 route del 2001:db8:c000::/34", n.server)
	n.want(n.run(), map[string][]Outcome{"answer": {OK, OK}, "best path": {Failed, OK}})
	// the destination's own router may know nobody of that address: the same answers through the exit
	n.ip("-n %s -6 route add 2001:db8:c000::/34 via 2001:db8:1::1", n.server)
	n.ip("-n %s -6 route replace 2001:db8:c000::/34 via 2001:db8:3::1", n.border)
	n.ip("-n %s -6 route replace unreachable 2001:db8:c000::/34", n.peer)
	n.want(n.run(), map[string][]Outcome{"best path": {OK, OK}})
	n.ip("-n %s route replace unreachable 198.51.0.0/16", n.border)
	n.want(n.run(), map[string][]Outcome{"answer": {OK, OK}, "best path": {OK, Failed}})
	n.ip("-n %s route replace 198.51.0.0/16 via 10.0.3.1", n.border)
	n.ip("-n %s route del 198.51.0.0/16", n.server)
	n.want(n.run(), map[string][]Outcome{"answer": {OK, OK}, "best path": {OK, Failed}})
}

// The border router decapsulates, and its peer drops; or it has no route to the peer.
func TestPeerDrops(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 route replace blackhole 2001:db8:c000::/34", n.peer)
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {Failed, OK}, "forward": {OK}})
	if text := found(out, "answer"); !strings.Contains(text, "packets come out of the SID: 2001:db8:2::1 answer") {
		t.Errorf("got %s", text)
	}
	n.ip("-n %s -6 route del default table 10", n.border)
	n.ip("-n %s -6 route add unreachable default table 10", n.border)
	out = n.run()
	n.want(out, map[string][]Outcome{"answer": {OK, OK}, "forward": {Failed, OK}})
}

// Nobody behind the SID has a way back to the exit's address.
func TestNoWayBack(t *testing.T) {
	n := newNetwork(t)
	for _, ns := range []string{n.border, n.peer, n.client} {
		n.ip("-n %s -6 route del %s/128", ns, exit6)
	}
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {Failed, OK}, "forward": {OK}})
	if text := found(out, "answer"); !strings.Contains(text, "packets come out of the SID: 2001:db8:2::1, 2001:db8:3::1, 2001:db8:c000::1 answer") {
		t.Errorf("got %s", text)
	}
}

// Encapsulated packets of 1500 bytes do not fit: a router on the way says so, or nobody does.
func TestTooSmall(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s link set east mtu 1500", n.inner)
	out := n.run()
	n.want(out, map[string][]Outcome{"answer": {OK, OK}, "forward": {OK, OK}, "size": {Failed, Failed}})
	if text := found(out, "size"); !strings.Contains(text, "packets of 1500 bytes vanish") || !strings.Contains(text, "2001:db8:1::1 on the way to the SID says that encapsulated packets have at most 1500 bytes") {
		t.Errorf("got %s", text)
	}
	n.ip("-n %s link set east mtu 1700", n.inner)
	n.ip("-n %s link set west mtu 1500", n.border) // veth: drops what is bigger
	out = n.run()
	n.want(out, map[string][]Outcome{"answer": {OK, OK}, "forward": {OK, OK}, "size": {Failed, Failed}})
	n.ip("-n %s link set west mtu 1700", n.border)
	n.ip("-n %s link set east mtu 1400", n.border)
	out = n.run()
	n.want(out, map[string][]Outcome{"size": {OK, OK}})
	if text := found(out, "size"); strings.Count(text, "takes 1400 bytes at most and says so") != 2 {
		t.Errorf("got %s", text)
	}
}

// What somebody changed in the kernel is found, and what the reflectors said meanwhile is no fault.
func TestKernelDiffers(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 route del 2001:db8:c000::/48 table 101", n.server)
	n.ip("-n %s -4 rule del priority 501 from %s", n.server, exit4)
	n.ip("-n %s sr tunsrc set 2001:db8:1::10", n.server)
	out := n.run()
	n.want(out, map[string][]Outcome{"table": {Failed}, "lookup": {Failed}, "rules": {Failed}, "tunnel source": {OK}})
	if text := found(out, "rules"); text != "missing: rule 501: from 203.0.113.1 unreachable\n" {
		t.Errorf("got %s", text)
	}
	asked := 0
	n.must(netns.Do(n.server, func() error {
		v, err := route.OpenView()
		if err == nil {
			err = n.kernel.Reconcile(n.entries)
		}
		if err != nil {
			return err
		}
		defer v.Close()
		in := n.in
		in.Exits = slices.Clone(in.Exits)
		in.Exits[0].Routes++ // just withdrawn
		_, late, err := kernel(n.Context(), v, in, func() (Input, error) { asked++; return n.in, nil })
		n.want(late, map[string][]Outcome{"table": {OK}, "lookup": {OK}, "rules": {OK}})
		return err
	}))
	if asked != 1 {
		t.Errorf("asked %d times more, want 1", asked)
	}
}

// Somebody else's rule comes before plait's: to wait for plait to put something back would be in vain.
func TestOthersRule(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s -6 rule add priority 100 lookup main suppress_prefixlength 0", n.server)
	out := n.run()
	n.want(out, map[string][]Outcome{"rules": {OK}, "lookup": {Failed}})
	for _, r := range out {
		if r.Check == "lookup" && (!strings.Contains(r.Found, "table 254") || !strings.Contains(r.Do, "ip -6 rule")) {
			t.Errorf("got %s; %s", r.Found, r.Do)
		}
	}
}

// Encapsulated packets leave by another interface than the one flows are watched on: they arrive, and it is said.
func TestOtherInterface(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n %s link add other type veth peer name behind", n.server)
	for _, link := range []string{"other", "behind"} {
		n.ip("-n %s link set %s mtu 1700 up", n.server, link)
	}
	n.must(netns.Do(n.server, n.kernel.Remove))
	samples := n.in.Exits[0].Samples
	n.planOn("other", samples...)
	out := n.run()
	n.want(out, map[string][]Outcome{"lookup": {OK}, "way": {Unknown, Unknown}, "answer": {OK, OK}, "size": {OK, OK}, "best path": {OK, OK}})
	if text := found(out, "way"); strings.Count(text, "dev east table 254; flows are watched on other alone") != 2 {
		t.Errorf("got %s", text)
	}
}

// In mode observe nothing is in the kernel, and SIDs are tried all the same.
func TestObserve(t *testing.T) {
	n := newNetwork(t)
	n.must(netns.Do(n.server, n.kernel.Remove))
	n.in.On = false
	out := n.run()
	n.want(out, map[string][]Outcome{"kernel": {Unknown}, "table": nil, "way": {OK, OK}, "answer": {OK, Unknown}, "forward": {OK}, "size": {Unknown}})
	n.ip("-n %s -6 route replace blackhole %s/128", n.border, sid6)
	n.want(n.run(), map[string][]Outcome{"answer": {Failed, Unknown}})
	n.ip("-n %s -6 route del fc00::/16", n.server)
	n.want(n.run(), map[string][]Outcome{"way": {Failed, Failed}, "answer": {Unknown, Unknown}})
	for i := range n.in.Exits[0].Samples {
		n.in.Exits[0].Samples[i].Way = netip.MustParsePrefix("fc00:1::/48")
	}
	out = n.run()
	n.want(out, map[string][]Outcome{"way": {Unknown, Unknown}, "answer": {Unknown, Unknown}})
	if text := found(out, "way"); !strings.Contains(text, "the reflectors tell of fc00:1::/48") {
		t.Errorf("got %s", text)
	}
}

// Without the configured interface nothing else is said of the kernel.
func TestNoInterface(t *testing.T) {
	n := newNetwork(t)
	n.in.Interface = "eth7"
	out := n.run()
	n.want(out, map[string][]Outcome{"session": {OK}, "kernel": {Failed}, "routes": {OK}, "rules": nil, "way": nil, "answer": nil, "best path": nil})
	if text := found(out, "kernel"); !strings.Contains(text, "find interface eth7") {
		t.Errorf("got %s", text)
	}
}

// An interrupted check ends, and an error of the daemon is passed on.
func TestInterrupted(t *testing.T) {
	rung.Netns(t)
	no := errors.New("no")
	if _, err := Run(t.Context(), func() (Input, error) { return Input{}, no }, func(string) {}); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	n := newNetwork(t)
	n.ip("-n %s -6 route replace blackhole %s/128", n.border, sid6)
	ctx, stop := context.WithCancel(t.Context())
	n.must(netns.Do(n.server, func() error {
		_, err := Run(ctx, func() (Input, error) { time.AfterFunc(200*time.Millisecond, stop); return n.in, nil }, func(string) {})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		return nil
	}))
}
