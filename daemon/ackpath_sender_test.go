package daemon

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/egress/mptcp"
)

// The kernel is told of interfaces when they are others, and again after it refused: with thousands of flows there are as many hellos a second.
func TestAckSenderWatches(t *testing.T) {
	k := newFakeAcks()
	s := newAckSender(k, true, (&said{}).logf)
	s.list = func() ([]mptcp.Flow, error) {
		return []mptcp.Flow{subflow("192.0.2.1:443", "198.51.100.7:5000", 0, "plait")}, nil
	}
	s.find = func(mptcp.Flow) (ackLink, error) { return ackLink{index: 4}, nil }
	now := time.Unix(1000, 0)
	for _, c := range []struct{ link, told int }{{3, 1}, {3, 1}, {6, 2}, {6, 2}, {5, 3}, {5, 4}, {6, 5}, {6, 5}} {
		now = now.Add(time.Second)
		s.answer(now, netip.MustParseAddr("198.51.100.7"), c.link, ackpath.Hello{Flows: []ackpath.Name{{Token: 7}}}.Append(nil))
		if s.watch(); k.told != c.told || !k.heard[c.link] || !k.heard[4] {
			t.Errorf("a hello at interface %d: told %d times, want %d; heard is %v", c.link, k.told, c.told, k.heard)
		}
	}
}

// The kernel is asked for the route of a flow now and then, not for every hello about it: of thousands of flows one comes each second.
func TestAckSenderRoutes(t *testing.T) {
	s := newAckSender(newFakeAcks(), true, t.Logf)
	s.list = func() ([]mptcp.Flow, error) {
		return []mptcp.Flow{subflow("192.0.2.1:443", "198.51.100.7:5000", 0, "plait"), subflow("192.0.2.1:443", "203.0.113.7:5001", 1, "plait")}, nil
	}
	asked := 0
	s.find = func(mptcp.Flow) (ackLink, error) { asked++; return ackLink{index: 4 + asked/2}, nil }
	now := time.Unix(1000, 0)
	hello := func(link int) {
		now = now.Add(time.Second)
		s.answer(now, netip.MustParseAddr("203.0.113.7"), link, ackpath.Hello{Flows: []ackpath.Name{{Token: 7}}}.Append(nil))
	}
	const seconds = 30
	for range seconds {
		hello(3)
	}
	if most := seconds * int(time.Second) / int(routeEvery); asked > most || asked < most/2 {
		t.Errorf("asked for a route %d times in %d s, want up to %d", asked, seconds, most)
	}
	hello(9)
	if got := s.taken[ackpath.Name{Token: 7}].interfaces; !slices.Equal(got, []int{9, 4 + asked/2}) {
		t.Errorf("interfaces %v, want that of the last hello, and of the last route, %d", got, 4+asked/2)
	}
}

// On a host with many sockets it takes long to look at them. Of a subflow that joins just after it nothing is said until the next look; of one that is not there then, that.
func TestAckSenderLooksSeldom(t *testing.T) {
	s := newAckSender(newFakeAcks(), true, t.Logf)
	flows := []mptcp.Flow{subflow("192.0.2.1:443", "198.51.100.7:5000", 0, "plait")}
	s.list = func() ([]mptcp.Flow, error) { time.Sleep(50 * time.Millisecond); return flows, nil }
	s.find = func(mptcp.Flow) (ackLink, error) { return ackLink{index: 4}, nil }
	now := time.Unix(1000, 0)
	says := func(after time.Duration, id uint8) ackpath.State {
		now = now.Add(after)
		b := s.answer(now, netip.MustParseAddr("198.51.100.7"), 3, ackpath.Hello{Flows: []ackpath.Name{{Token: 7, ID: id, SenderID: id}}}.Append(nil))
		a, err := ackpath.ParseAnswer(b)
		if err != nil || len(a.Flows) != 1 {
			t.Fatalf("%v, %v", a, err)
		}
		return a.Flows[0].State
	}
	if got := says(0, 0); got != ackpath.Known {
		t.Errorf("of a subflow that is there: %v", got)
	}
	flows = append(flows, subflow("192.0.2.1:443", "198.51.100.7:5001", 1, "plait"))
	if got := says(100*time.Millisecond, 1); got != ackpath.Unasked {
		t.Errorf("of one that came after the look: %v", got)
	}
	if got := says(100*time.Second, 1); got != ackpath.Known {
		t.Errorf("of one that came before the next look: %v", got)
	}
	if got := says(100*time.Second, 2); got != ackpath.Unknown {
		t.Errorf("of one that is not there: %v", got)
	}
}
