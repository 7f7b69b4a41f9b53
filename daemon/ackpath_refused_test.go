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

// A flow whose copies cannot be ended keeps no other's from ending, and is tried again.
func TestAckReceiverGoesOn(t *testing.T) {
	r, k, _, flows, log := newAckRig(t)
	for _, f := range *flows {
		key := flowKey(f.Ends())
		k.routes[key] = bpf.AckRoute{}
		r.flows[key] = &ackFlow{ends: f.Ends(), copied: &bpf.AckRoute{}, decision: ackpath.Decision{Copy: true}}
	}
	k.stuck = flowKey((*flows)[0].Ends())
	*flows = nil
	r.look(time.Unix(1000, 0))
	if _, left := k.routes[k.stuck]; len(k.routes) != 1 || !left || len(r.flows) != 1 || k.sent == nil || !strings.Contains(log.String(), "stuck") {
		t.Errorf("the kernel copies for %v at %v, known are %v; the log is %q", k.routes, k.sent, r.flows, log.String())
	}
	k.stuck = bpf.FlowKey{}
	r.look(time.Unix(1001, 0))
	if len(k.routes) != 0 || len(r.flows) != 0 {
		t.Errorf("after the trouble the kernel copies for %v, known are %v", k.routes, r.flows)
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
