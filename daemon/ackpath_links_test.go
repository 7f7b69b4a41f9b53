package daemon

import (
	"errors"
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
