package daemon

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/egress/mptcp"
)

// A subflow whose link is not found is told of with the reason, whatever else the connection has, and copies of its ACKs end.
func TestAckReceiverWithoutLink(t *testing.T) {
	r, k, sender, flows, _ := newAckRig(t)
	r.look(time.Now())
	for range 2 {
		sender.reply(t, r, 2)
		r.look(time.Now())
	}
	if len(k.routes) != 1 {
		t.Fatalf("copied are %v, want the slow subflow", k.routes)
	}
	find := r.find
	r.find = func(f mptcp.Flow) (ackLink, error) {
		if f.LocalID == (*flows)[0].LocalID {
			return ackLink{}, errors.New("the route has an encapsulation")
		}
		return find(f)
	}
	r.look(time.Now())
	var s AckpathStatus
	r.status(&s, time.Now())
	s, err := s.explain("127.0.0.1")
	if err != nil || len(s.Flows) != 2 || len(k.routes) != 0 {
		t.Fatalf("explained are %+v, %v, copied %v; want two subflows, and no copies", s.Flows, err, k.routes)
	}
	if s.Flows[0].Because != "the route has an encapsulation" || s.Flows[0].Link != "" || s.Flows[1].Because != "no other link of the connection is known" || s.Flows[1].Link != "link3" {
		t.Errorf("%+v", s.Flows)
	}
}

// Of copies that end because there is nothing to decide about their subflow any more, the log says which of the reasons it was.
func TestAckReceiverEnds(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*[]mptcp.Flow)
	}{
		{"the subflow has ended", func(f *[]mptcp.Flow) { *f = (*f)[1:] }},
		{"the connection has no other link", func(f *[]mptcp.Flow) { *f = (*f)[:1] }},
		{"the connection has no other link", func(f *[]mptcp.Flow) { (*f)[1].Local = netip.MustParseAddrPort("10.0.0.2:1001") }},
		{"nothing has been received for 1m0s", func(f *[]mptcp.Flow) { (*f)[0].Quiet, (*f)[1].Quiet = idleAfter, idleAfter }},
	} {
		r, k, sender, flows, log := newAckRig(t)
		r.look(time.Now())
		for range 2 {
			sender.reply(t, r, 2)
			r.look(time.Now())
		}
		if len(k.routes) != 1 {
			t.Fatalf("copied are %v, want the slow subflow", k.routes)
		}
		c.change(flows)
		r.look(time.Now())
		if len(k.routes) != 0 || !strings.HasSuffix(log.String(), "after 0: "+c.want+"\n") {
			t.Errorf("copied are %v, the log is %q; want the reason %q", k.routes, log.String(), c.want)
		}
	}
}

// Subflows cannot be listed for a moment: copies go on. For longer: they end, for nobody would end them later.
func TestAckReceiverCannotList(t *testing.T) {
	r, k, sender, flows, _ := newAckRig(t)
	now := time.Now()
	r.look(now)
	for range 2 {
		sender.reply(t, r, 2)
		r.look(now)
	}
	r.list = func() ([]mptcp.Flow, error) { return (*flows)[:1], errors.New("too many open files") }
	if r.look(now.Add(time.Second)); len(k.routes) != 1 {
		t.Errorf("copied after a second without a list are %v, want the slow subflow", k.routes)
	}
	if r.look(now.Add(unlistedFor + 2*time.Second)); len(k.routes) != 0 {
		t.Errorf("copied after %v without a list are %v", unlistedFor+2*time.Second, k.routes)
	}
	var status AckpathStatus
	if r.status(&status, now); status.Trouble == "" || len(status.Flows) > 0 {
		t.Errorf("without a list the status is %+v, want why", status)
	}
}
