package route

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"plait.dev/plait/egress"
)

// counted are entries, and how many times they were gone through: a comparison of everything does so twice, what puts routes back once, all else not at all.
func counted(entries []egress.Entry, times *int) iter.Seq[egress.Entry] {
	return func(yield func(egress.Entry) bool) {
		*times++
		slices.Values(entries)(yield)
	}
}

// repairs waits until the server has what it should, and returns for how long.
func (n *network) repairs(k *Kernel, entries iter.Seq[egress.Entry], want []string) time.Duration {
	n.Helper()
	return n.repaired(k, entries, n.everything, want)
}

// repaired repairs whenever something is lost until that is shown which is wanted, and returns how long it took.
func (n *network) repaired(k *Kernel, entries iter.Seq[egress.Entry], shown func() []string, want []string) time.Duration {
	n.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		select {
		case <-k.Lost():
			if _, err := k.Repair(entries); err != nil {
				n.Log(err)
			}
		case <-time.After(10 * time.Millisecond):
		}
		took := time.Since(begin)
		if slices.Equal(shown(), want) {
			return took
		}
	}
	n.same("never repaired", shown(), want)
	n.Fatal("see above")
	return 0
}

// What somebody takes away is there again, by the fewest steps, and without a look at all routes.
func TestRepair(t *testing.T) {
	n := newNetwork(t)
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values(some())))
	want := n.everything()
	for _, c := range []struct {
		broken string
		times  int // through the entries
		want   []string
	}{
		{"-6 route del 2001:db8:c000::/48 table 101", 1, []string{"add route 2001:db8:c000::/48 nhid 1879048192"}},
		{"-4 route del 198.51.100.0/24 metric 4112", 1, []string{"add route 198.51.100.0/24 via 10.1.0.1"}},
		{"nexthop del id 1879048192", 1, []string{"add nexthop id 1879048196 encap seg6 mode encap segs fc00:1:0:6::", "add route 2001:db8:c000::/48 nhid 1879048196", "add route ::/0 nhid 1879048196"}},
		{"nexthop del id 1879048195", 1, []string{"add nexthop id 1879048197", "add route 0.0.0.0/0 nhid 1879048197", "add route 198.51.100.0/24 nhid 1879048197"}},
		{"-6 rule del priority 500 from 2001:db8:1::a", 0, []string{"add rule 500: from 2001:db8:1::a lookup 101"}},
		{"-4 rule del priority 501 from 203.0.113.2", 0, []string{"add rule 501: from 203.0.113.2 unreachable"}},
		{"-6 addr del 2001:db8:1::b/128 dev s1", 0, []string{"add address 2001:db8:1::b"}},
		{"-4 addr del 203.0.113.1/32 dev s1", 0, []string{"add address 203.0.113.1"}},
	} {
		journal = nil
		times := 0
		n.ip("-n " + n.server + " " + c.broken)
		if strings.HasPrefix(c.broken, "nexthop") { // its successor has another number
			<-k.Lost()
			if n.repair(k, counted(some(), &times)) {
				t.Error("the repair says that everything was compared")
			}
			want = n.everything()
			n.must(k.Reconcile(slices.Values(some())))
		} else {
			t.Logf("%s: repaired after %v", c.broken, n.repairs(k, counted(some(), &times), want))
		}
		if times != c.times {
			t.Errorf("%s: went through the entries %d times, want %d", c.broken, times, c.times)
		}
		if !slices.EqualFunc(journal, c.want, strings.HasPrefix) {
			t.Errorf("%s: did %q, want %q", c.broken, journal, c.want)
		}
	}
}

func (n *network) repair(k *Kernel, entries iter.Seq[egress.Entry]) (all bool) {
	n.Helper()
	all, err := k.Repair(entries)
	n.must(err)
	return all
}

// An interface that was down, or without a carrier, has all its routes again as soon as it can.
func TestRepairLink(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	n.must(k.Reconcile(slices.Values(some())))
	want := n.everything()
	as := "-n " + n.asbr[0] + " "
	n.ip(as + "link set u0 down")
	for deadline := time.Now().Add(20 * time.Second); len(n.lines("nexthop show")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the next hops are still there: the pages say otherwise")
		}
	}
	n.ip(as + "link set u0 up")
	t.Logf("carrier: repaired after %v", n.repairs(k, slices.Values(some()), want))
	n.ip("-n " + n.server + " link set s1 down")
	n.ip("-n " + n.server + " link set s1 up")
	for {
		<-k.Lost()
		if all, err := k.Repair(slices.Values(some())); err != nil && strings.Contains(err.Error(), "this host has no such address") {
			if !all {
				t.Error("the repair does not say that everything was compared")
			}
			break // the kernel does not keep the tunnel source, nor somebody's route
		}
	}
	n.ip("-n " + n.server + " -6 addr add 2001:db8:1:1::10/64 dev s1")
	n.ip("-n " + n.server + " -6 route add fc00:1::/48 via 2001:db8:1:1::1")
	t.Logf("down and up: repaired after %v", n.repairs(k, slices.Values(some()), want))
}

// What is none of plait's business, and what it does itself, is nothing to repair.
func TestNothingToRepair(t *testing.T) {
	n := newNetwork(t)
	var journal []string
	k := n.kernel(&journal)
	n.must(k.Reconcile(slices.Values(some())))
	many := make([]egress.Change, 2000)
	for i := range many {
		e := entry(101, fmt.Sprintf("2001:db8:%x::/48", i+1), sids6[0])
		many[i].New = &e
	}
	n.must(k.Apply(many))
	for i := range many {
		many[i].Old, many[i].New = many[i].New, nil
	}
	n.must(k.Apply(many))
	for _, theirs := range []string{"link add other type veth", "link set other up", "link set veth0 up", "addr add 192.0.2.1/24 dev other", "link del other",
		"-6 route add 2001:db8:e000::/48 dev s2", "-6 route del 2001:db8:e000::/48 dev s2", "rule add priority 400 lookup main", "rule del priority 400",
		"nexthop add id 7 dev s2", "nexthop del id 7", "link set s1 mtu 1400", "link set s1 mtu 1500"} {
		n.ip("-n " + n.server + " " + theirs)
	}
	journal = nil
	times := 0
	n.ip("-n " + n.server + " -6 rule del priority 500 from 2001:db8:1::a") // the last event
	for len(journal) == 0 {
		<-k.Lost()
		k.watch.mu.Lock()
		if len(k.watch.losses.routes) > 0 {
			t.Errorf("heard of routes: %v", k.watch.losses.routes)
		}
		k.watch.mu.Unlock()
		n.repair(k, counted(some(), &times))
	}
	// s1 was never heard of before its MTU changed, so it may have come back: all is compared, once.
	if times > 2 {
		t.Errorf("went through the entries %d times", times)
	}
	if len(journal) != 1 {
		t.Errorf("did %q", journal)
	}
}

// Events that do not stop lead to 10 repairs a second, or fewer when they take long.
func TestRepairRate(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want int // in 10 s
	}{{0, 100}, {time.Second, 3}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch()
			gone := kernelRoute{place: placeOf(101, netip.MustParsePrefix("192.0.2.0/24"), Metric)}.request(nil, Add)
			gone.Header.Type = unix.RTM_DELROUTE
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						w.mu.Lock()
						w.take(gone)
						w.tell()
						w.mu.Unlock()
					}
				}
			}()
			repairs := 0
			for begin := time.Now(); time.Since(begin) < 10*time.Second-time.Millisecond; repairs++ {
				<-w.lost
				if l := w.begin(); len(l.routes) != 1 {
					t.Errorf("to repair: %v", l)
				}
				began := time.Now()
				time.Sleep(c.took)
				w.end(began)
			}
			close(stop)
			if repairs < c.want-1 || repairs > c.want+1 {
				t.Errorf("%d repairs of %v in 10 s, want %d", repairs, c.took, c.want)
			}
		})
	}
}

// More routes than are remembered, and events that were lost, mean that anything may be gone.
func TestTooMuchLost(t *testing.T) {
	w := newWatch()
	for i := range mostLost + 1 {
		m := kernelRoute{place: placeOf(101, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i)}), 24), Metric)}.request(nil, Delete)
		m.Header.Type = netlink.HeaderType(unix.RTM_DELROUTE)
		w.take(m)
	}
	if !w.losses.unknown || w.losses.routes != nil {
		t.Errorf("%d routes are remembered", len(w.losses.routes))
	}
}

// With the last address of a network the kernel drops the best paths over it without an event of theirs.
func TestRepairRenumbered(t *testing.T) {
	n := newNetwork(t)
	k := n.kernel(nil)
	entries := []egress.Entry{entry(0, "198.51.100.0/24", hops4[1])}
	n.must(k.Reconcile(slices.Values(entries)))
	shown := func() []string { return n.lines("-4 route show 198.51.100.0/24") }
	want := shown()
	n.ip("-n " + n.server + " addr del 10.2.0.10/24 dev s2")
	n.same("without the address", shown(), nil)
	n.ip("-n " + n.server + " addr add 10.2.0.11/24 dev s2")
	n.repaired(k, slices.Values(entries), shown, want)
	k.watch.mu.Lock()
	defer k.watch.mu.Unlock()
	k.watch.takeAddress(addressMessage(2, "10.2.0.12"), true)
	first := k.watch.losses.addressed[2]
	k.watch.losses.addressed = nil
	if k.watch.takeAddress(addressMessage(2, "10.2.0.12"), true); !first || k.watch.losses.addressed[2] {
		t.Error("an address whose lifetime was extended counts as another one")
	}
}

// addressMessage is what the kernel tells of an IPv4 address.
func addressMessage(link uint32, a string) []byte {
	b := native.AppendUint32([]byte{unix.AF_INET, 24, 0, 0}, link)
	return body(b).address(unix.IFA_LOCAL, netip.MustParseAddr(a))
}

// What could not be put back when an event told of it is tried again with the next one, whatever that is of.
func TestRepairSwitchedOff(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n " + n.server + " addr add 2001:db8:1:9::1/128 dev lo")
	k := n.open(Config{Exits: exits, Interface: "s1", TunnelSource: netip.MustParseAddr("2001:db8:1:9::1")}, nil)
	entries := []egress.Entry{entry(101, "2001:db8:c000::/48", sids6[0])}
	n.must(k.Reconcile(slices.Values(entries)))
	shown := func() []string { return n.lines("-6 addr show dev s1 deprecated") }
	want := shown()
	set := func(v string) {
		n.in(n.server, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/s1/disable_ipv6", []byte(v), 0) })
	}
	set("1")
	for quiet := false; !quiet; {
		select {
		case <-k.Lost():
			if _, err := k.Repair(slices.Values(entries)); !errors.Is(err, unix.EACCES) {
				t.Errorf("got %v, want that it is refused", err)
			}
		case <-time.After(time.Second):
			quiet = true
		}
	}
	set("0")
	n.ip("-n " + n.server + " addr add 192.0.2.9/32 dev lo")
	n.repaired(k, slices.Values(entries), shown, want)
}
