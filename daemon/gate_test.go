package daemon

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// gate is a subflow that sends without a pause over a path whose round trip a test changes, under burst, which has copies for as long as they help.
type gate struct {
	*host
	tell  func(toldLead) fairState
	later atomic.Int64 // us by which the round trip is longer than gateRTT
}

// gateRTT is the round trip as it is with copies, on the empty path.
const gateRTT = 100 * time.Millisecond

func newGate(t *testing.T) *gate {
	g := &gate{host: newHost(t)}
	g.multipath = true
	client := g.second("-client")
	near, far := g.device(client.ns, "wire", unix.IFF_TUN), g.device(g.ns, "wire", unix.IFF_TUN)
	go slowly(near, far, gateRTT/2, nil)
	go variably(far, near, func() time.Duration { return gateRTT/2 + time.Duration(g.later.Load())*time.Microsecond }, nil)
	for ns, address := range map[string]string{g.ns: "10.3.0.1", client.ns: "10.3.0.2"} {
		g.ip("-n " + ns + " addr add " + address + "/24 dev wire")
		g.ip("-n " + ns + " link set wire up")
	}
	g.patient("10.3.0.2", "wire") // the round trip changes by more than a timeout bears
	k := g.loaded("fixed:burst")
	g.tell = g.leads(k)
	c, err := g.connectTo("10.3.0.1", 0, client.ns, otherChoice) // what loaded() takes
	g.must(err)
	g.Cleanup(c.close)
	end := make(chan bool)
	g.Cleanup(func() { close(end) })
	go func() {
		b := make([]byte, 1<<16)
		for {
			if _, err := c.client.Read(b); err != nil {
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
				if _, err := c.server.Write(make([]byte, 5000)); err != nil {
					return
				}
			}
		}
	}()
	g.eventually(20*time.Second, "a round trip is known", func() bool { return g.look().leastUs() > 0 })
	return g
}

func (g *gate) look() fairState { return g.tell(toldLead{}) }

// knows has the subflow know such a lead, again and again, until what it makes of it holds.
func (g *gate) knows(lead time.Duration, what string, holds func(fairState) bool) (s fairState) {
	g.Helper()
	g.eventually(20*time.Second, what, func() bool {
		s = g.tell(toldLead{LeadUs: uint32(lead.Microseconds())})
		return holds(s)
	})
	return s
}

// Copies end while a queue stands, which drains, for the window is one of a shorter round trip: the socket sees that from a round trip as long as without copies, and not only after the time
// for which a lead is believed. But while copies come it is the native ACKs that do not, and a round trip of as much a queue.
func TestFairControlSeesCopiesEnd(t *testing.T) {
	const lead, queue = 100 * time.Millisecond, 60 * time.Millisecond
	const believed = 3 * time.Second // FAIR_FRESH_US
	for _, c := range []struct {
		name string
		come bool
	}{{"copies end", false}, {"native ACKs stay away", true}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t)
			g.later.Store(queue.Microseconds())
			want := uint32((gateRTT + lead + queue*3/4).Microseconds())
			s := g.knows(lead, "a lead is known, and a queue", func(s fairState) bool { return s.LeadUs > 0 && s.NativeUs > want })
			last := time.Now()
			if c.come {
				g.tell(toldLead{CopyFor: uint32(time.Minute.Microseconds())})
			}
			g.later.Store(lead.Microseconds())
			for s.Closed == 0 && time.Since(last) < believed-believed/6 {
				s = g.look()
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("%v after the last lead %+v", time.Since(last), s)
			if c.come != (s.Closed == 0) {
				t.Errorf("%v after the last lead, copies come: %v, %+v", time.Since(last), c.come, s)
			}
		})
	}
}

// The least round trip, seen with copies, is longer without by the lead it was seen with: neither by what an uplink that was full for a while made of that, nor by what late copies left of it.
func TestFairControlCorrectsLeastRoundTrip(t *testing.T) {
	const lead, spike, end = 100 * time.Millisecond, 400 * time.Millisecond, time.Millisecond
	const tolerance = 20_000 // us
	g := newGate(t)
	in := func(lead time.Duration) {
		g.knows(lead, "the lead is in use", func(s fairState) bool { return s.LeadUs == uint32(lead.Microseconds()) })
	}
	in(lead)
	in(spike)
	in(lead)
	least := g.look().leastUs()
	g.later.Store((2 * spike).Microseconds()) // what comes after copies have ended is not less
	g.knows(lead, "a queue stands", func(s fairState) bool { return time.Duration(s.SRTT8/8)*time.Microsecond > 2*spike })
	s := g.knows(end, "copies are closed out", func(s fairState) bool { return s.Closed == 1 })
	if by := int64(s.leastUs()) - int64(least); by < lead.Microseconds()-tolerance || by > lead.Microseconds()+tolerance {
		t.Errorf("closed out, the least round trip is longer by %d us, %d before, want by %v; %+v", by, least, lead, s)
	}
}
