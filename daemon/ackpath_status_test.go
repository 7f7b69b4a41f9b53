package daemon

import (
	"testing"
	"time"

	"plait.dev/plait/ackpath"
)

// A lead is told of copies that are made, and not of those of before.
func TestAckReceiverLead(t *testing.T) {
	r, _, sender, flows, _ := newAckRig(t)
	r.look(time.Now())
	for range 2 {
		sender.reply(t, r, 2)
		r.look(time.Now())
	}
	f := r.flows[flowKey((*flows)[0].Ends())]
	f.told.LeadUs = 90_000
	lead := func() float64 {
		var s AckpathStatus
		r.status(&s, time.Now())
		return s.Flows[0].LeadMs
	}
	if got := lead(); got != 90 {
		t.Errorf("the lead of copies is %v ms, want 90", got)
	}
	for _, w := range r.ways {
		w.Way = ackpath.Way{} // nothing answers any more
	}
	if r.look(time.Now()); f.copied != nil || lead() != 0 {
		t.Errorf("copied is %v, with a lead of %v ms; want none", f.copied, lead())
	}
}
