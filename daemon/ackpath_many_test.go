package daemon

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plait.dev/plait/lab/netns"
)

// connections opens many at once, whose second subflows join by themselves.
func (a *ackHosts) connections(many int) (pairs []pair) {
	a.Helper()
	var l net.Listener
	a.in(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(a.server, 0).String())
		return err
	})
	a.Cleanup(func() { l.Close() }) // later: who joins asks it
	pairs = make([]pair, many)
	accepted := make(map[string]*net.TCPConn, many)
	for some := range slices.Chunk(pairs, 50) {
		var dialed sync.WaitGroup
		for i := range some {
			dialed.Go(func() {
				err := netns.Do(a.client.ns, func() error {
					d := net.Dialer{Timeout: 10 * time.Second}
					d.SetMultipathTCP(true)
					c, err := d.Dial("tcp", l.Addr().String())
					if err == nil {
						some[i].client = c.(*net.TCPConn)
					}
					return err
				})
				if err != nil {
					a.Error(err)
				}
			})
		}
		dialed.Wait()
		if a.Failed() { // Accept would wait without end
			a.FailNow()
		}
		for range some {
			c, err := l.Accept()
			a.must(err)
			accepted[c.RemoteAddr().String()] = c.(*net.TCPConn)
		}
	}
	for i, p := range pairs {
		pairs[i].server = accepted[p.client.LocalAddr().String()]
		a.Cleanup(pairs[i].close)
	}
	return pairs
}

// A thousand connections that are sent a little every second: the ACKs of most are copied at once; when the receiver's plait dies they come by themselves, and when the
// sender's does as well, and every byte arrives.
func TestAckpathMany(t *testing.T) {
	const many, chunk = 1000, 4 << 10
	a := newAckHosts(t, true)
	server, client := a.up("  holdout_percent: 0"), a.receiver("mode: on, ratio: 1")
	stop := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	rounds := 0 // that have arrived, of all connections
	pairs := a.connections(many)
	for _, p := range pairs {
		all.Go(func() {
			for at := 0; ; at += chunk {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
				sent := make(chan error, 1)
				go func() { sent <- send(p.server, at, chunk) }()
				if err := errors.Join(receive(p.client, at, chunk), <-sent); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				rounds++
				mu.Unlock()
			}
		})
	}
	goes := func(what string) {
		mu.Lock()
		until := rounds + 3*many
		mu.Unlock()
		a.eventually(2*time.Minute, what+": all connections go on", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return rounds >= until
		})
	}
	a.eventually(3*time.Minute, "the ACKs of most are copied at once", func() bool {
		copied := 0
		for _, f := range a.acks(client).Flows {
			if !f.Copied.IsZero() {
				copied++
			}
		}
		time.Sleep(300 * time.Millisecond)
		return copied >= many*3/4
	})
	client.kill()
	a.eventually(time.Second, "the receiver is killed: none of its programs is attached", func() bool { return !strings.Contains(a.attached(), "client") })
	goes("the receiver is killed")
	server.kill()
	goes("the sender is killed")
	close(stop)
	all.Wait()
	for _, p := range pairs { // while their links are there: they keep the kernel half
		p.close()
	}
	a.eventually(time.Minute, "the connections have ended: no program of plait's is left", func() bool { return len(a.programs()) == 0 })
}
