package stripe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
)

// Routes that change all the time, as on a BGP router, are told of ten times a second, the last one too; a link or an address at once.
func TestRouteStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		links, addrs, routes := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(chan netlink.RouteUpdate)
		told, ended := 0, make(chan bool)
		go func() { ended <- relay(ctx, links, addrs, routes, func() { told++ }) }()
		want := func(what string, n int) {
			t.Helper()
			synctest.Wait()
			if told != n {
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
