package daemon

import (
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"plait.dev/plait/bpf"
	"plait.dev/plait/egress"
	"plait.dev/plait/egress/mptcp"
)

// nothing is a program that lets every packet pass.
func nothing(h *host) *ebpf.Program {
	h.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "nothing", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	h.must(err)
	h.Cleanup(func() { h.must(p.Close()) })
	return p
}

// One packet again and again (BPF_PROG_TEST_RUN), in turns with a program that does nothing. There the socket of a packet is none of TCP: of outgoing
// data, what comes before the socket is in it, and BenchmarkFlowTraffic has the rest.
func BenchmarkFlowPackets(b *testing.B) {
	h := newNamespace(b)
	f, none := loadPrograms(h), nothing(h)
	for _, flow := range []packet{flow4, flow6} {
		f.know(b, flow)
	}
	const sent, heard = bpf.FlowsProgPlaitFlowSent, bpf.FlowsProgPlaitFlowHeard
	for _, one := range []struct {
		name, program string
		change        func(*packet)
	}{
		{"data", sent, func(p *packet) { p.payload = 1400 }},
		{"udp", sent, func(p *packet) { p.payload, p.udp = 1400, true }},
		{"ack", heard, func(p *packet) { *p = p.back(); p.acknowledged = 1000 }},
		{"ack-not-known", heard, func(p *packet) { *p = p.back(); p.to = netip.AddrPortFrom(p.to.Addr(), 444) }},
	} {
		for _, way := range []string{plain, srv6, reduced} {
			for _, flow := range []packet{flow4, flow6} {
				flow.way = way
				family := "v6"
				if flow.from.Addr().Is4() {
					family = "v4"
				}
				one.change(&flow)
				data := flow.bytes()
				b.Run(strings.ReplaceAll(one.name+"/"+way+"/"+family, " ", "-"), func(b *testing.B) { alternate(b, f.Programs[one.program], none, data) })
			}
		}
	}
}

// alternate reports what a program needs for a packet, and what doing nothing does: medians, for the machine has other work.
func alternate(b *testing.B, program, none *ebpf.Program, data []byte) {
	const each = 20_000
	took := map[*ebpf.Program][]time.Duration{}
	for b.Loop() {
		for _, p := range []*ebpf.Program{program, none} {
			_, average, err := p.Benchmark(data, each, nil)
			if err != nil {
				b.Fatal(err)
			}
			took[p] = append(took[p], average)
		}
	}
	median := func(p *ebpf.Program) float64 {
		slices.Sort(took[p])
		return float64(took[p][len(took[p])/2].Nanoseconds())
	}
	b.ReportMetric(median(program), "ns/packet")
	b.ReportMetric(median(none), "nothing-ns/packet")
	b.ReportMetric(median(program)/median(none), "times-nothing")
	b.ReportMetric(0, "ns/op")
}

// A transfer between two namespaces, a packet at a time (gso_max_segs 1), timed by the kernel (BPF_ENABLE_STATS) at both programs and at one that does
// nothing beside them: sent is for data, heard for ACKs. The clock's own cost is in all of them.
func BenchmarkFlowTraffic(b *testing.B) {
	for _, way := range []string{plain, srv6, reduced} {
		for _, transport := range []string{"TCP", "MPTCP"} {
			for _, connections := range []int{1, 1000} {
				name := fmt.Sprintf("%s/%s/connections=%d", strings.ReplaceAll(way, " ", "-"), transport, connections)
				b.Run(name, func(b *testing.B) { traffic(b, way, transport == "MPTCP", connections) })
			}
		}
	}
}

// traffic reports what the programs need for the packets of a transfer over some connections at once.
func traffic(b *testing.B, way string, multipath bool, connections int) {
	h := newNamespace(b)
	h.multipath = multipath
	peer := h.tunnel(way, "gso_max_segs 1")
	none := nothing(h)
	f := h.watches("net0", flow6.from.Addr())
	for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		h.in(func() error {
			device, err := net.InterfaceByName("net0")
			if err != nil {
				return err
			}
			l, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: none, Attach: hook})
			if err == nil {
				b.Cleanup(func() { h.must(l.Close()) })
			}
			return err
		})
	}
	timing, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	h.must(err)
	defer timing.Close()
	var pairs []pair
	for range connections {
		p, err := h.connectTo(flow6.from.Addr().String(), 0, peer, "")
		h.must(err)
		defer p.close()
		h.must(transfer(p, 64<<10))
		pairs = append(pairs, p)
	}
	timed := map[string]*ebpf.Program{"sent": f.Programs[bpf.FlowsProgPlaitFlowSent], "heard": f.Programs[bpf.FlowsProgPlaitFlowHeard], "nothing": none}
	before := map[string]*ebpf.ProgramStats{}
	for name, p := range timed {
		before[name], err = p.Stats()
		h.must(err)
	}
	const round = 1000 // transfers of 64 KB, on the connections in turn
	for b.Loop() {
		for i := range round {
			h.must(transfer(pairs[i%connections], 64<<10))
		}
	}
	refused, all := 0, f.Maps[bpf.FlowsMapPlaitFlows].Iterate()
	var key bpf.FlowKey
	var flow bpf.FlowsFlow
	for all.Next(&key, &flow) {
		if flow.Stats.Armed == bpf.FlowsPlaitFlowArmedPLAIT_FLOW_REFUSED {
			refused++
		}
	}
	h.must(all.Err())
	b.ReportMetric(float64(refused), "timers-refused")
	for name, p := range timed {
		s, err := p.Stats()
		h.must(err)
		n := s.RunCount - before[name].RunCount
		b.ReportMetric(float64((s.Runtime-before[name].Runtime).Nanoseconds())/float64(n), name+"-ns/packet")
		if n < uint64(b.N)*round {
			b.Errorf("%s ran for %d packets: the transfer did not pass it", name, n)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// manyFlows makes the kernel know flows to as many clients.
func manyFlows(b *testing.B, f *flows, n int) (keys []bpf.FlowKey) {
	b.Helper()
	values := make([]bpf.FlowsFlow, n)
	for i := range n {
		k := flow6.key()
		binary.BigEndian.PutUint32(k.Remote[12:], uint32(i))
		keys = append(keys, k)
		values[i] = bpf.FlowsFlow{BeganAtNs: monotonicNs(), Stats: bpf.FlowStats{AckedBytes: 1, Acked: 1000, Next: 11_000, Armed: 1}}
	}
	if _, err := f.Maps[bpf.FlowsMapPlaitFlows].BatchUpdate(keys, values, nil); err != nil {
		b.Fatal(err)
	}
	return keys
}

// An ACK of each of 100,000 flows in turn, and a program that does nothing in between: nothing is in a cache, and the clock is read for each packet.
func BenchmarkFlowPacketsMany(b *testing.B) {
	h := newNamespace(b)
	f, none := loadPrograms(h), nothing(h)
	keys := manyFlows(b, f, 100_000)
	took, n := map[*ebpf.Program]time.Duration{}, 0
	for b.Loop() {
		for i := range keys {
			p := flow6.back()
			p.acknowledged, p.from = 1000, netip.AddrPortFrom(netip.AddrFrom16(keys[i].Remote), p.from.Port())
			data := p.bytes()
			for _, program := range []*ebpf.Program{f.Programs[bpf.FlowsProgPlaitFlowHeard], none} {
				_, one, err := program.Benchmark(data, 1, nil)
				if err != nil {
					b.Fatal(err)
				}
				if one < 100*time.Microsecond { // not interrupted by other work of the machine
					took[program] += one
				}
			}
			n++
		}
	}
	b.ReportMetric(float64(took[f.Programs[bpf.FlowsProgPlaitFlowHeard]].Nanoseconds())/float64(n), "ns/packet")
	b.ReportMetric(float64(took[none].Nanoseconds())/float64(n), "nothing-ns/packet")
	b.ReportMetric(0, "ns/op")
}

// What plait egress flows reads ten times a second, of 100,000 flows that do nothing and of as many that all did something.
func BenchmarkRecord(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("busy=%v", busy), func(b *testing.B) {
			f := loadPrograms(newNamespace(b))
			manyFlows(b, f, 100_000)
			r := recorder{flows: f, out: csv.NewWriter(io.Discard), where: func(mptcp.Ends) (string, netip.Prefix) { return "transit-a", netip.Prefix{} }}
			if _, err := r.read(time.Now()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if busy {
					for k := range r.last {
						r.last[k] = egress.FlowCount{}
					}
				}
				did, err := r.read(time.Now())
				if err == nil {
					err = r.write(did)
				}
				if err != nil || (len(did) > 0) != busy {
					b.Fatal(len(did), err)
				}
			}
		})
	}
}
