package daemon

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/internal/rung"
)

// A flow is told to be slow, once, by the first answer that finds the timed packet late, while much is on the way and its connection has no more to send.
func TestFlowBecomesSlow(t *testing.T) {
	rung.Netns(t)
	f := loadPrograms(newNamespace(t))
	const least, late, notLate = 2_000_000, 6 * time.Second, 2 * time.Second // us, and on either side of the 4 s from which on an answer is late: no machine is as busy as that
	const again = 200 * time.Millisecond                                     // SLOW_AGAIN_NS in bpf/flows.bpf.c
	for _, c := range []struct {
		name  string
		age   time.Duration // of the timed packet, whose answer is yet to come
		stats bpf.FlowStats
		waits time.Duration // for how long data has waited for the flow; 0: none does
		want  bool
	}{
		{"late", late, bpf.FlowStats{Token: 1, Next: 31_000}, 0, true},
		{"not late", notLate, bpf.FlowStats{Token: 1, Next: 31_000}, 0, false},
		{"little on the way", late, bpf.FlowStats{Token: 1, Next: 20_000}, 0, false},
		{"plain TCP", late, bpf.FlowStats{Next: 31_000}, 0, false},
		{"data waits for it", late, bpf.FlowStats{Token: 1, Next: 31_000}, time.Second, false},
		{"data waits for it since just now", late, bpf.FlowStats{Token: 1, Next: 31_000}, 1, true},
	} {
		flow := flow4
		v := bpf.FlowsFlow{Stats: c.stats, Timed: 30_000}
		v.Stats.Acked, v.Stats.LeastRttUs, v.Stats.UnansweredAtNs, v.Stats.Armed = 1000, least, 1, 1
		begin := monotonicNs()
		v.Stats.TimedAtNs = begin - uint64(c.age)
		if c.waits > 0 {
			v.Stats.WaitingAtNs = begin - uint64(c.waits)
		}
		if err := f.Maps[bpf.FlowsMapPlaitFlows].Put(flow.key(), &v); err != nil {
			t.Fatal(err)
		}
		for flow.acknowledged = 2000; flow.acknowledged <= 4000; flow.acknowledged += 1000 {
			f.run(t, bpf.FlowsProgPlaitFlowHeard, flow.back().bytes())
		}
		most := 1 + int(time.Duration(monotonicNs()-begin)/again) // once, where nothing interrupts the test
		told := 0
		f.events.SetDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			e, err := f.read()
			if err != nil {
				break
			}
			if e.news == bpf.FlowSlow {
				told++
			}
		}
		if (told > 0) != c.want || told > most {
			t.Errorf("%s: told %d times", c.name, told)
		}
	}
}

// A connection goes on without the flow that became slow, and its exit stands by for the client; a second connection is not asked to do the same.
func TestLeaveSlow(t *testing.T) {
	rung.Netns(t)
	x := choosing(t, Service{egress.Throughput, 0})
	x.flows = loadPrograms(newNamespace(t))
	g, since := mptcp.Group{Client: chooser}, slowFlow{acked: map[mptcp.Ends]uint64{}}
	for _, one := range []struct {
		exit         string
		acked, rttUs uint64
	}{{"a", 3000, 90_000}, {"b", 40_000, 20_000}} {
		e := mptcp.Ends{Local: netip.AddrPortFrom(x.byExit[one.exit][false], 443), Remote: netip.AddrPortFrom(chooser, 50_000)}
		v := bpf.FlowsFlow{Stats: bpf.FlowStats{Token: 1, AckedBytes: 7000 + one.acked, RttUs: uint32(one.rttUs)}}
		key := flowKey(e)
		if err := x.flows.Maps[bpf.FlowsMapPlaitFlows].Put(&key, &v); err != nil {
			t.Fatal(err)
		}
		since.acked[e] = 7000
		g.Subflows = append(g.Subflows, mptcp.Subflow{Local: e.Local, Remote: e.Remote})
	}
	if lost := x.leaveSlow(g, g.Subflows[0].Ends(), since, time.Now()); !slices.Equal(lost, []mptcp.Ends{g.Subflows[0].Ends()}) {
		t.Errorf("it goes on without %v, want the flow through a", lost)
	}
	if got := x.roles(1, 443); got != "10- a-= b+ c+" {
		t.Errorf("roles: %s", got)
	}
	if lost := x.leaveSlow(g, g.Subflows[0].Ends(), since, time.Now()); len(lost) != 0 {
		t.Errorf("again without %v", lost)
	}
}
