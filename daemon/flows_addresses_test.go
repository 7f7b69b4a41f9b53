package daemon

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress/mptcp"
	"plait.dev/plait/internal/rung"
)

// A host has more addresses than there is room for: that is said once, and not with every connection to one of the others.
func TestManyAddresses(t *testing.T) {
	rung.Netns(t)
	spec, err := bpf.LoadFlows()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.FlowsMapPlaitSources])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := &flows{Collection: &ebpf.Collection{Maps: map[string]*ebpf.Map{bpf.FlowsMapPlaitSources: m}}, watched: map[netip.Addr]bool{}}
	said := 0
	for range 2 {
		a := netip.MustParseAddr("2001:db8::1")
		for range 2 * m.MaxEntries() {
			if err := f.watch(a); err != nil {
				t.Log(err)
				said++
			}
			a = a.Next()
		}
	}
	if said != 1 || len(f.watched) != int(m.MaxEntries()) {
		t.Errorf("%d addresses are watched of %d there is room for, and it is said %d times that there is no more", len(f.watched), m.MaxEntries(), said)
	}
}

// Who asks about a flow, or has an address watched, while plait goes down gets no answer, and touches nothing that is gone: trials and connections end after the flows.
func TestFlowsBesideClose(t *testing.T) {
	f := loadPrograms(newNamespace(t))
	var asking sync.WaitGroup
	var asked [2]atomic.Int64
	for i, ask := range []func(n int){
		func(int) { f.stats(mptcp.Ends{Local: flow6.from, Remote: flow6.to}) },
		func(n int) { _ = f.watch(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})) }, // there is room for few
	} {
		asking.Go(func() {
			for n := range 200_000 {
				ask(n)
				asked[i].Add(1)
			}
		})
	}
	for asked[0].Load() < 100 || asked[1].Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	asking.Wait()
	if _, ok := f.stats(mptcp.Ends{Local: flow6.from, Remote: flow6.to}); ok {
		t.Error("a flow is known after the end")
	}
}
