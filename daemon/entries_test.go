package daemon

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"plait.dev/plait/bpf"
	"plait.dev/plait/internal/rung"
)

// A server on the Internet has more destinations than there is room for: the kernel forgets some while they are read.
func TestLatenciesOfManyDestinations(t *testing.T) {
	rung.Netns(t)
	spec, err := bpf.LoadPlait()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps["plait_latencies"])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	n := uint32(0)
	arrive := func() {
		var p bpf.Prefix
		binary.BigEndian.PutUint32(p.Address[:], n)
		n++
		if err := m.Put(p, bpf.Latency{Managed: bpf.Group{Connections: 1}}); err != nil {
			t.Error(err)
		}
	}
	for range 2 * m.MaxEntries() {
		arrive()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				arrive()
			}
		}
	}()
	k := &kernel{Collection: &ebpf.Collection{Maps: map[string]*ebpf.Map{"plait_latencies": m}}}
	for range 20 {
		all := 0
		err := k.latencies(func(*bpf.Prefix, *bpf.Latency) { all++ })
		if least := int(m.MaxEntries()) / 2; err != nil || all < least {
			t.Fatalf("%d destinations, %v, want more than %d", all, err, least)
		}
	}
}
