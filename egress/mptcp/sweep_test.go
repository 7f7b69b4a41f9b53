package mptcp

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// A connection is forgotten when it was not found twice in a row, and not before.
func TestSweep(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.open(2, "192.0.2.1:80", "198.51.100.2:1000")...)
	r.took()
	one, both := map[uint32]bool{1: true}, map[uint32]bool{1: true, 2: true}
	for i, there := range []map[uint32]bool{one, both, one} {
		if r.m.Sweep(there); r.m.Status().Connections != 2 {
			t.Fatalf("after look %d there are %d connections, want 2", i+1, r.m.Status().Connections)
		}
	}
	r.reach()
	r.m.Changed(nil, func() {}) // both wait
	r.m.Sweep(one)
	r.m.Tick(r.now)
	r.wants("remove 192.0.2.11")
	if len(r.m.byToken) != 1 || len(r.m.from) != 1 {
		t.Errorf("there are %d connections from %d addresses, want 1", len(r.m.byToken), len(r.m.from))
	}
}

// A connection that its client reset is known until a Sweep. Its token can be another's by then.
func TestTokenOfConnectionThatWasReset(t *testing.T) {
	r := newRig(t, Config{})
	r.reach(a4, a6)
	r.handle(r.open(1, "192.0.2.1:80", "198.51.100.1:1000")...)
	r.handle(r.join(1, a4+":80", "198.51.100.1:1001"))
	r.wants("announce 192.0.2.11")
	delete(r.announced, 1)
	r.handle(r.open(1, "[2001:db8::1]:80", "[2001:db8:c::1]:1000")...)
	r.wants("announce 2001:db8::11")
	if c := r.m.byToken[1]; len(c.subflows) != 1 || len(r.m.from) != 1 {
		t.Errorf("the new connection is taken for %+v, and clients come from %d addresses, want 1", c, len(r.m.from))
	}
}

// The kernel does not tell of the end of connections that clients reset, nor of those that wait to be accepted when the application goes.
func TestSweepsWhatIsNotTold(t *testing.T) {
	before := sweepEvery
	sweepEvery = 200 * time.Millisecond
	t.Cleanup(func() { sweepEvery = before })
	w := newWorld(t, "")
	w.reach(1)
	s, _ := w.serve()
	w.listen("tcp", "[::]:80")
	stays, reset := w.fetch("10.77.0.2:80", -10, true), w.fetch("10.77.0.2:80", -10, true)
	var deaf net.Listener
	w.in(w.server, func() (err error) {
		config := net.ListenConfig{}
		config.SetMultipathTCP(true)
		deaf, err = config.Listen(context.Background(), "tcp", "[::]:81")
		return err
	})
	unheard := w.fetch("10.77.0.2:81", -10, true)
	w.until("three connections", func() bool { return s.Status().Connections == 3 })
	stays.until("bytes", func() bool { return stays.progress()+reset.progress() == 20 })
	if err := reset.conn.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	reset.conn.Close()
	deaf.Close()
	<-unheard.done
	w.until("end of two", func() bool { return s.Status().Connections == 1 })
	if st := s.Status(); st.Subflows != 2 {
		t.Errorf("status %+v, want the connection that stays, with 2 subflows", st)
	}
}

// A connection that this host begins is nobody's client, whether it is answered or not.
func TestConnectionThatIsNotAnswered(t *testing.T) {
	w := newWorld(t, "")
	w.reach(1)
	w.run("ip", "-n", w.server, "route", "add", "203.0.113.0/24", "via", "10.77.0.1")
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.in(w.server, func() error {
			var d net.Dialer
			d.SetMultipathTCP(true)
			_, _ = d.DialContext(ctx, "tcp", "203.0.113.1:80") // nobody has it
			return nil
		})
	}()
	w.until("the first packet", func() bool { return strings.Contains(w.sockets(), "SYN-SENT") })
	s, _ := w.serve()
	w.until("the connections to be read", func() bool { return s.Status().Resyncs == 1 })
	census := w.inventory().census
	if st := s.Status(); st.Seen != 0 || st.Announces != 0 || census.MPTCP != 0 {
		t.Errorf("status %+v, census %+v, want no connection of a client", st, census)
	}
	stop()
	<-over
}
