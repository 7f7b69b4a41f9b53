package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"plait.dev/plait/ackpath"
	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// A flow that the kernel has no room for is told of with that, and tried again.
func TestAckReceiverFull(t *testing.T) {
	r, k, sender, _, _ := newAckRig(t)
	k.full = errors.New("no room")
	r.look(time.Now())
	for range 2 {
		sender.reply(t, r, 2)
		r.look(time.Now())
	}
	now := time.Now()
	if r.look(now); len(k.sent) != 0 {
		t.Errorf("programs are attached to %v while nothing is copied", k.sent)
	}
	var s AckpathStatus
	r.status(&s, now)
	if f := s.Flows[0]; !f.Copied.IsZero() || !strings.HasPrefix(f.Because, "no room; tried again in ") {
		t.Errorf("the flow is %+v, want to hear that there is no room", f)
	}
}

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

// When the kernel's table is full, that is said.
func TestAckRoutesFull(t *testing.T) {
	rung.Netns(t)
	spec, err := bpf.LoadAcks()
	if err != nil {
		t.Fatal(err)
	}
	spec.Programs = nil
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	a := &ackPrograms{Collection: c}
	defer c.Close()
	most := int(c.Maps[bpf.AcksMapPlaitAckRoutes].MaxEntries())
	for i := range most {
		if err := a.copyTo(bpf.FlowKey{LocalPort: uint16(i)}, bpf.AckRoute{}); err != nil {
			t.Fatal(i, err)
		}
	}
	err = a.copyTo(bpf.FlowKey{RemotePort: 1}, bpf.AckRoute{})
	if want := "the ACKs of 4096 subflows are copied, and there is no room for more"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := a.copyTo(bpf.FlowKey{LocalPort: 1}, bpf.AckRoute{Ifindex: 1}); err != nil {
		t.Errorf("another way of a flow that has room: %v", err)
	}
}
