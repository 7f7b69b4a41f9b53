package daemon

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/internal/rung"
)

// A sender answers every hello of a receiver with many flows, all new at once, and hears of each flow before it would forget it.
func TestAckReceiverMany(t *testing.T) {
	many := rung.Times(300, 1200)
	r, k, receiver, flows, _ := newAckRig(t)
	sender := newAckSender(k, true, t.Logf)
	*flows = nil
	for i := range uint32(many) {
		slow, quick := subflow("10.0.0.1:1000", "127.0.0.1:443", 0, "cubic"), subflow("10.0.1.1:1001", "127.0.0.1:443", 1, "cubic")
		slow.Token, slow.RemoteToken, quick.Token, quick.RemoteToken = i+1, i+1, i+1, i+1
		slow.Local, quick.Local = netip.AddrPortFrom(slow.Local.Addr(), uint16(i+1)), netip.AddrPortFrom(quick.Local.Addr(), uint16(i+1))
		*flows = append(*flows, slow, quick)
	}
	asked := map[ackpath.Name]time.Time{}
	begin, b, every := time.Now(), make([]byte, 2048), askAgain
	for at := begin; at.Before(begin.Add(2 * takenFor)); at = at.Add(every) {
		r.clock = func() time.Time { return at }
		if at.Sub(begin) > 2*newFor {
			every = ackLookEvery
		}
		r.look(at)
		for {
			_ = receiver.SetReadDeadline(time.Now().Add(time.Millisecond)) // what was sent is there
			n, from, err := receiver.ReadFromUDPAddrPort(b)
			if err != nil {
				break
			}
			h, err := ackpath.ParseHello(b[:n])
			if err != nil {
				t.Fatal(err)
			}
			for key, way := range r.ways {
				if r.sockets[key.helloKey].LocalAddr().(*net.UDPAddr).AddrPort() != from {
					continue
				}
				if key.link == 2 {
					way.Way = ackpath.Way{}
					way.Ask(at.Add(-3 * time.Second))
					way.Asked(at.Add(-3*time.Second), h.Nonce)
				}
				if !sender.admits(at, key.source) {
					t.Fatalf("after %v a hello is not answered", at.Sub(begin))
				}
				r.answered(at, key, ackpath.Answer{Nonce: h.Nonce, Fair: true})
			}
			for _, name := range h.Flows {
				if last, ok := asked[name]; ok && at.Sub(last) > takenFor {
					t.Errorf("%v was not asked about for %v", name, at.Sub(last))
				}
				asked[name] = at
			}
		}
	}
	if len(asked) != many {
		t.Errorf("asked about %d of %d flows", len(asked), many)
	}
	for name, last := range asked {
		if begin.Add(2*takenFor).Sub(last) > takenFor {
			t.Errorf("%v was asked about last %v after the beginning", name, last.Sub(begin))
		}
	}
}

// A way's round trip begins when its hello is sent, not when the look began: before that all sockets of the host are searched, and at first the hellos' own opened.
func TestAckReceiverRTT(t *testing.T) {
	r, _, sender, flows, _ := newAckRig(t)
	const took, rtt = 100 * time.Millisecond, 5 * time.Millisecond
	now := time.Unix(1000, 0)
	r.clock = func() time.Time { return now }
	r.list = func() ([]mptcp.Flow, error) { now = now.Add(took); return *flows, nil }
	open := r.open
	r.open = func(l ackLink) (*net.UDPConn, error) { now = now.Add(took); return open(l) }
	b, most := make([]byte, 2048), rtt+took // the other way's socket is opened meanwhile
	for range 3 {
		r.look(now)
		nonces := map[netip.AddrPort]uint64{}
		for range *flows {
			_ = sender.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, from, err := sender.ReadFromUDPAddrPort(b)
			if err != nil {
				t.Fatal(err)
			}
			h, err := ackpath.ParseHello(b[:n])
			if err != nil {
				t.Fatal(err)
			}
			nonces[from] = h.Nonce
		}
		for k, w := range r.ways {
			r.answered(now.Add(rtt), k, ackpath.Answer{Nonce: nonces[r.sockets[k.helloKey].LocalAddr().(*net.UDPAddr).AddrPort()], Fair: true})
			if w.RTT() < rtt || w.RTT() > most {
				t.Errorf("the round trip over %s is %v, want %v to %v", w.link.name, w.RTT(), rtt, most)
			}
		}
		now, most = now.Add(ackpath.HelloEvery), rtt
	}
}

// When copies over one quick link end, another one is taken at once, after the sender was asked over it; a link to which they were ended stays in its pause.
func TestAckReceiverThirdLink(t *testing.T) {
	r, k, _, flows, _ := newAckRig(t)
	*flows = append(*flows, subflow("10.0.2.1:1002", "127.0.0.1:443", 2, "cubic"))
	now := time.Unix(1000, 0)
	r.look(now)
	link := func(index int, rtt time.Duration) {
		for k, w := range r.ways {
			if k.link == index {
				w.Way = ackpath.Way{}
				if rtt > 0 {
					w.Ask(now.Add(-rtt))
					w.Asked(now.Add(-rtt), 1)
					w.Answered(now, 1, true)
				}
			}
		}
	}
	f := r.flows[flowKey((*flows)[0].Ends())]
	agree := func() {
		f.told, f.answers = ackpath.Told{Name: f.name, State: ackpath.Known}, f.answers+1
	}
	copied := func(what string, over int) {
		t.Helper()
		now = now.Add(100 * time.Millisecond)
		r.look(now)
		if got := int(k.routes[flowKey(f.ends)].Ifindex); got != over {
			t.Errorf("%s: copied over %d, want %d (0: not at all); %s", what, got, over, f.decision.Because)
		}
	}
	link(2, 300*time.Millisecond)
	link(3, 20*time.Millisecond)
	link(4, 40*time.Millisecond)
	copied("before the sender agrees", 0)
	agree()
	copied("the quickest link", 3)
	link(3, 0)
	copied("the quickest link is silent", 0)
	copied("before the sender agrees over the other", 0)
	agree()
	copied("the other link", 4)
	link(3, 20*time.Millisecond)
	link(4, 0)
	copied("the other is silent as well", 0)
	agree()
	copied("the first link answers again, and pauses", 0)
	r.set(On, 2)
	copied("another ratio, before the sender agrees", 0)
	agree()
	copied("another ratio", 3)
	f.answers = 0
	for n, told := range []ackpath.Told{{Copies: 5, Late: 1}, {Copies: 30, Late: 3}, {Copies: 10, Late: 1}, {Copies: 40, Late: 2}} { // it took copies before, and anew
		told.Name = f.name
		r.ways[f.quick].Asked(now, uint64(n))
		r.answered(now, f.quick, ackpath.Answer{Nonce: uint64(n), Flows: []ackpath.Told{told}})
	}
	var s AckpathStatus
	r.status(&s, now)
	if got := s.Flows[0]; got.Arrived != 65 || got.Late != 4 {
		t.Errorf("%d arrived, %d late, want 65 and 4", got.Arrived, got.Late)
	}
	r.set(On, maxRatio)
	copied("a ratio that the links do not have", 0)
}

// When the route of either link was gone for a moment, copies begin anew as soon as the sender has agreed, without a pause.
func TestAckReceiverFlap(t *testing.T) {
	for _, gone := range []int{2, 3} {
		r, k, _, flows, _ := newAckRig(t)
		now := time.Unix(1000, 0)
		look := func() *ackFlow {
			now = now.Add(100 * time.Millisecond)
			r.look(now)
			return r.flows[flowKey((*flows)[0].Ends())]
		}
		look()
		for k, w := range r.ways {
			rtt := map[int]time.Duration{2: 300 * time.Millisecond, 3: 20 * time.Millisecond}[k.link]
			w.Way = ackpath.Way{}
			w.Ask(now.Add(-rtt))
			w.Asked(now.Add(-rtt), 1)
			w.Answered(now, 1, true)
		}
		agree := func(what string) {
			t.Helper()
			f := look()
			if len(k.routes) != 0 || !f.decision.Ask {
				t.Errorf("link %d, %s: copied are %v, %+v; want to ask first", gone, what, k.routes, f.decision)
			}
			f.told, f.answers = ackpath.Told{Name: f.name, State: ackpath.Known}, f.answers+1
			if look(); len(k.routes) != 1 {
				t.Errorf("link %d, %s: copied are %v, want the flow; %s", gone, what, k.routes, f.decision.Because)
			}
		}
		agree("at first")
		find := r.find
		r.find = func(f mptcp.Flow) (ackLink, error) {
			l, err := find(f)
			if l.index == gone {
				err = errors.New("no route")
			}
			return l, err
		}
		if look(); len(k.routes) != 0 {
			t.Errorf("link %d is gone: copied are %v", gone, k.routes)
		}
		r.find = find
		agree("the route is back")
	}
}
