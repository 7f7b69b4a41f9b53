package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Of many routes with which the same is done the journal has one line, and one for each with which it was not.
func TestCrowds(t *testing.T) {
	nth := func(table uint32, i int) request {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, 0, byte(i), 0}), 24)
		return request{Add, kernelRoute{place: placeOf(table, prefix, Metric), link: 2}, "missing"}
	}
	var requests []request
	for i := range crowded + 50 {
		requests = append(requests, nth(101, i))
	}
	requests = append(requests, nth(102, 0), request{Add, kernelRule{source: netip.MustParseAddr("192.0.2.1"), priority: 501, unreachable: true}, "missing"})
	var journal []string
	k := &Kernel{config: Config{Journal: func(s Step) { journal = append(journal, s.String()) }}}
	many := crowds(requests)
	for i, r := range requests {
		var err error
		if i == 7 {
			err = unix.ENOMEM
		}
		if got := k.told(r, err, many); !errors.Is(got, err) {
			t.Errorf("%v: error %v, want %v", r.object, got, err)
		}
	}
	want := []string{
		"add route 20.0.7.0/24 link 2 table 101 metric 4112: cannot allocate memory; the kernel has no memory for it",
		"add 149 routes in table 101, the first 20.0.0.0/24: missing",
		"add route 20.0.0.0/24 link 2 table 102 metric 4112: missing",
		"add rule 501: from 192.0.2.1 unreachable: missing",
	}
	if !slices.Equal(journal, want) {
		t.Errorf("journal %q, want %q", journal, want)
	}
}

// Why a route cannot be made with a next hop has its advice with it, and gets no other one: that of a way to a next hop, for instance, is not that of a route.
func TestUnmadeIsAdvisedOnce(t *testing.T) {
	var journal []string
	k := &Kernel{config: Config{Journal: func(s Step) { journal = append(journal, s.String()) }}}
	prefix := netip.MustParsePrefix("192.0.2.0/24")
	k.unmade = map[way]*unmade{{}: {err: fmt.Errorf("find the way to next hop 2001:db8::1: %w; a route or a network to it is missing", unix.ENETUNREACH), routes: 1, first: []netip.Prefix{prefix}}}
	var f failures
	k.tellUnmade(&f)
	k.unmade[way{}].routes = crowded + 1
	k.tellUnmade(&f)
	for i, made := range []string{"192.0.2.0/24: make route 192.0.2.0/24", "101 routes, the first 192.0.2.0/24"} {
		if want := "add " + made + ": find the way to next hop 2001:db8::1: network is unreachable; a route or a network to it is missing"; journal[i] != want {
			t.Errorf("journal %q, want %q", journal[i], want)
		}
	}
}

// What is kept of routes finds each again, whatever its family, and none that is not there.
func TestRoutes(t *testing.T) {
	var all routes
	all.number = map[kernelRoute]uint32{}
	var places []place
	for _, prefix := range []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.0/16", "::ffff:10.0.0.0/104", "2001:db8::/32", "2001:db8::/48"} {
		for _, table := range []uint32{254, 101} {
			places = append(places, placeOf(table, netip.MustParsePrefix(prefix), Metric), placeOf(table, netip.MustParsePrefix(prefix), StandbyMetric))
		}
	}
	for i, at := range places[:len(places)-1] {
		all.add(kernelRoute{place: at, link: uint32(i % 3)})
	}
	slices.SortFunc(all.list, func(a, b placed) int { return a.compare(b.place) })
	for i, at := range places[:len(places)-1] {
		if p := all.find(at); p == nil || all.whole(p) != (kernelRoute{place: at, link: uint32(i % 3)}) {
			t.Errorf("%v of table %d: found %v", at.prefix(), at.table, p)
		}
	}
	if p := all.find(places[len(places)-1]); p != nil {
		t.Errorf("found %v, which is not there", p)
	}
	if len(all.kinds) != 3 {
		t.Errorf("%d kinds, want 3", len(all.kinds))
	}
}

// What somebody else made and serves as well is left at each comparison, and told of once, until it was plait's to make.
func TestLeftOnce(t *testing.T) {
	var journal []string
	k := &Kernel{config: Config{Journal: func(s Step) { journal = append(journal, s.Verb.String()) }}, left: map[object]bool{}}
	r := request{Add, kernelAddress{netip.MustParseAddr("2001:db8::a"), 2}, "missing"}
	for _, err := range []error{unix.EEXIST, unix.EEXIST, nil, unix.EEXIST, unix.EEXIST} {
		if got := k.told(r, err, nil); got != nil {
			t.Error(got)
		}
	}
	if want := []string{"leave", "add", "leave"}; !slices.Equal(journal, want) {
		t.Errorf("journal %q, want %q", journal, want)
	}
}
