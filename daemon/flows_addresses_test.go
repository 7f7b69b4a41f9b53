package daemon

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
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
