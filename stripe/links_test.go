package stripe

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/lab/netns"
)

// Routes that change all the time, as on a BGP router, are told of ten times a second, the last one too; a link or an address at once.
func TestRouteStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		links, addrs, routes := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(chan netlink.RouteUpdate)
		var told atomic.Int64
		ended := make(chan bool)
		go func() { ended <- relay(ctx, links, addrs, routes, func() { told.Add(1) }) }()
		want := func(what string, n int) {
			t.Helper()
			synctest.Wait()
			if told := int(told.Load()); told != n {
				t.Errorf("%s: told %d times, want %d", what, told, n)
			}
		}
		routes <- netlink.RouteUpdate{}
		want("the first route", 1)
		for range 999 {
			time.Sleep(time.Millisecond)
			routes <- netlink.RouteUpdate{}
		}
		want("a second of them", 10)
		time.Sleep(routesEvery)
		want("the last ones", 11)
		addrs <- netlink.AddrUpdate{}
		links <- netlink.LinkUpdate{}
		want("an address and a link", 13)
		time.Sleep(time.Second)
		want("a second of nothing", 13)
		stop()
		if !<-ended {
			t.Error("the end of ctx is taken for one of the subscription")
		}
		go func() { ended <- relay(t.Context(), links, addrs, routes, func() {}) }()
		close(routes)
		if <-ended {
			t.Error("the subscription has ended, and nobody is to begin another")
		}
	})
}

// What changes between a list of the links and the subscription is no event of that: who watches looks again once it is there. A listener's list would be wrong until the
// next change, hours later perhaps.
func TestSubscriptionIsTold(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := hearChanges(t)
	go watchOnce(ctx)
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("it is not")
	}
}

// hearChanges is told of changes by whoever is subscribed, and subscribes nobody itself.
func hearChanges(t *testing.T) signal {
	told := newSignal()
	watchers.Lock()
	defer watchers.Unlock()
	if watchers.all == nil {
		watchers.all = map[signal]bool{}
	}
	watchers.all[told] = true
	t.Cleanup(func() {
		watchers.Lock()
		defer watchers.Unlock()
		delete(watchers.all, told)
	})
	return told
}

// A subscription ends with who wants it also where more has happened than has been heard of: else each watch on a busy router would leave a goroutine behind.
func TestSubscriptionEndsInAStorm(t *testing.T) {
	rung.Netns(t)
	ns := fmt.Sprintf("plait-storm-%d", os.Getpid())
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	ip("netns add " + ns)
	defer ip("netns del " + ns)
	ip("-n " + ns + " link set lo up")
	var routes strings.Builder
	for i := range 256 {
		fmt.Fprintf(&routes, "route add 198.51.100.%d/32 dev lo\n", i)
	}
	batch := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(batch, []byte(routes.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	stuck := func() int { // goroutines of subscriptions that wait for room
		all := make([]byte, 1<<20)
		n := 0
		for _, one := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if strings.Contains(one, "netlink.routeSubscribeAt") && strings.Contains(one, "[chan send") {
				n++
			}
		}
		return n
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for start := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Since(start) > 10*time.Second {
				t.Fatal(what)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := hearChanges(t)
	ended := make(chan error, 1)
	go func() { ended <- netns.Do(ns, func() error { watchOnce(ctx); return nil }) }()
	<-told
	watchers.Lock() // nobody hears of anything
	unlock := sync.OnceFunc(watchers.Unlock)
	t.Cleanup(unlock) // before that of hearChanges, which takes it
	ip("-n " + ns + " -batch " + batch)
	until("256 routes found room", func() bool { return stuck() > 0 })
	stop()
	unlock()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	until("a goroutine still waits for room", func() bool { return stuck() == 0 })
}

// A path begins at an address of the kind it leads to, as RFC 6724 has it (section 5, rule 6): what comes from a unique local one, which a home's router gives beside its
// provider's, gets no answer from without.
func TestFrom(t *testing.T) {
	l := Link{Name: "wlan0"}
	for _, a := range []string{"10.0.0.1/24", "192.0.2.1/24", "fd00::1/64", "2001:db8::1/64", "fd00::2/64"} {
		l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
	}
	for to, want := range map[string]string{"198.51.100.1": "10.0.0.1", "192.0.2.9": "192.0.2.1", "2001:db8:1::1": "2001:db8::1", "2001:db8::9": "2001:db8::1", "fd01::1": "fd00::1"} {
		if s, _ := l.from(netip.MustParseAddr(to)); s.addr != netip.MustParseAddr(want) {
			t.Errorf("to %s from %v, want %s", to, s.addr, want)
		}
	}
}

// A link with more addresses than are told is told with those of both families: a dialer may have one of them only.
func TestBothFamiliesAreTold(t *testing.T) {
	l := Link{Name: "eth0"}
	for _, a := range []string{"192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24", "192.0.2.4/24", "192.0.2.5/24", "2001:db8::1/64", "2001:db8::2/64"} {
		l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
	}
	var told []string
	for _, a := range announce([]Link{l}, nil, 7788)[0].Addrs {
		told = append(told, a.Addr().String())
	}
	if want := []string{"192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2"}; !slices.Equal(told, want) {
		t.Errorf("%v are told, want %v", told, want)
	}
	if !slices.IsSortedFunc(l.Addrs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
		t.Errorf("the link's own list has become %v", l.Addrs)
	}
}

// An interface that cannot be used is there all the same: ip link shows one without a carrier as up.
func TestUnusable(t *testing.T) {
	rung.Netns(t)
	ns := fmt.Sprintf("plait-unusable-%d", os.Getpid())
	for _, args := range []string{"netns add " + ns, "-n " + ns + " link add c0 type veth peer name c1", "-n " + ns + " addr add 10.78.0.1/24 dev c0"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	defer func() { _ = exec.Command("ip", "netns", "del", ns).Run() }()
	for _, c := range []struct{ change, link, want string }{
		{"", "gone0", "no such interface"}, {"", "c0", "is down"}, {"link set c0 up", "c0", "no carrier"}, {"link set c1 up", "c1", "no address"},
	} {
		if c.change != "" {
			if out, err := exec.Command("ip", append([]string{"-n", ns}, strings.Fields(c.change)...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v\n%s", c.change, err, out)
			}
		}
		err := netns.Do(ns, func() error {
			if got := Unusable(c.link); !strings.Contains(got, c.want) {
				return fmt.Errorf("%q, want %q", got, c.want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.link, err)
		}
	}
}
