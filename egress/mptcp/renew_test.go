package mptcp

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A subflow that dies of an error comes back: its address is withdrawn and announced again 2 s later. One that is closed does not.
func TestRenew(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	a, b := r.join(1, a4+":80", "198.51.100.1:1001"), r.join(1, b4+":80", "198.51.100.1:1002")
	r.handle(a, b)
	r.took()
	r.handle(Event{Type: SubClosed, Token: 1, Subflow: a.Subflow, Err: syscall.ETIMEDOUT}, Event{Type: SubClosed, Token: 1, Subflow: b.Subflow})
	r.wants("remove 192.0.2.11")
	r.now = r.now.Add(repeatAfter[renewLate] - 1)
	r.m.Tick(r.now)
	r.wants("")
	r.now = r.now.Add(1)
	r.m.Tick(r.now)
	r.wants("announce 192.0.2.11")
}

// A subflow that dies whenever it has come, as behind a middlebox that resets it, is asked for ever less often: after 2, 4, 8 and then every 60 s. The other address's is not concerned, nor is one that has lasted.
func TestRenewsPatiently(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, b4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	port := 1000
	// dies lets a client open a subflow which lasts for a while, and returns after what time its address is announced again.
	dies := func(addr string, lasts time.Duration) time.Duration {
		port++
		join := r.join(1, addr+":80", fmt.Sprint("198.51.100.1:", port))
		r.handle(join)
		r.now = r.now.Add(lasts)
		r.m.Tick(r.now)
		r.took()
		r.handle(Event{Type: SubClosed, Token: 1, Subflow: join.Subflow, Err: syscall.ECONNRESET})
		r.wants("remove " + addr)
		died := r.now
		for range 1000 { // the other's may be repeated meanwhile
			r.now = r.m.Tick(r.now)
			if r.m.Tick(r.now); strings.Contains(r.took(), "announce "+addr) {
				break
			}
		}
		return (r.now.Sub(died) - together).Round(together)
	}
	const short = time.Second
	for _, c := range []struct {
		addr        string
		lasts, want time.Duration
	}{
		{a4, short, 2 * time.Second},
		{a4, short, 4 * time.Second},
		{a4, short, 8 * time.Second},
		{a4, short, time.Minute},
		{a4, short, time.Minute},
		{b4, short, 2 * time.Second},
		{a4, time.Minute, 2 * time.Second},
	} {
		if got := dies(c.addr, c.lasts); got != c.want {
			t.Errorf("%s, whose subflow lasted %v: announced again after %v, want %v", c.addr, c.lasts, got, c.want)
		}
	}
}
